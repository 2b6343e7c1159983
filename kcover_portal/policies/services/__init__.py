"""Publishes, validates, compares and exports policies."""

from kcover_portal.policies.services.diff import Difference, PolicyChange, compare, compare_revisions, two_revisions
from kcover_portal.policies.services.effects import digest as digest_of_effects
from kcover_portal.policies.services.effects import effects
from kcover_portal.policies.services.export import export
from kcover_portal.policies.services.policy_objects import read_policy_objects
from kcover_portal.policies.services.revisions import Conflict, NotFound, apply, delete, rollback
from kcover_portal.policies.services.shipped import (
    FIRST_MODE,
    Pack,
    UnknownPack,
    dismiss_first_choice,
    install_defaults,
    install_pack,
    missing_defaults,
    pack_text,
    packs,
)
from kcover_portal.policies.services.validation import InvalidPolicies, ParsedPolicy, ValidationResult, draft, validate

__all__ = [
    "FIRST_MODE",
    "Conflict",
    "Difference",
    "InvalidPolicies",
    "NotFound",
    "Pack",
    "ParsedPolicy",
    "PolicyChange",
    "UnknownPack",
    "ValidationResult",
    "apply",
    "compare",
    "compare_revisions",
    "delete",
    "digest_of_effects",
    "dismiss_first_choice",
    "draft",
    "effects",
    "export",
    "install_defaults",
    "install_pack",
    "missing_defaults",
    "pack_text",
    "packs",
    "read_policy_objects",
    "rollback",
    "two_revisions",
    "validate",
]
