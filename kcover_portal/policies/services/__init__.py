"""Publishes, validates, compares and exports policies."""

from kcover_portal.policies.services.diff import (
    Difference as Difference,
    PolicyChange as PolicyChange,
    compare as compare,
    compare_revisions as compare_revisions,
    two_revisions as two_revisions,
)
from kcover_portal.policies.services.effects import digest_of_effects as digest_of_effects, effects as effects
from kcover_portal.policies.services.export import export as export
from kcover_portal.policies.services.policy_objects import read_policy_objects as read_policy_objects
from kcover_portal.policies.services.revisions import (
    Conflict as Conflict,
    NotFound as NotFound,
    apply as apply,
    delete as delete,
    rollback as rollback,
)
from kcover_portal.policies.services.shipped import (
    FIRST_MODE as FIRST_MODE,
    Pack as Pack,
    UnknownPack as UnknownPack,
    dismiss_first_choice as dismiss_first_choice,
    install_defaults as install_defaults,
    install_pack as install_pack,
    pack_text as pack_text,
    packs as packs,
)
from kcover_portal.policies.services.validation import (
    InvalidPolicies as InvalidPolicies,
    ParsedPolicy as ParsedPolicy,
    ValidationResult as ValidationResult,
    draft as draft,
    validate as validate,
)
