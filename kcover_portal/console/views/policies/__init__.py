"""Policies of both kinds: the list, one policy with its revisions, the editor, tries, and actions on a whole policy."""

from kcover_portal.console.views.policies import tries
from kcover_portal.console.views.policies.commands import archive as archive, rollback as rollback
from kcover_portal.console.views.policies.editor import (
    edit as edit,
    rule as rule,
    validate as validate,
    vocabulary as vocabulary,
)
from kcover_portal.console.views.policies.packs import (
    dismiss_first_pack as dismiss_first_pack,
    first_pack as first_pack,
    install_pack as install_pack,
    packs as packs,
    try_pack as try_pack,
)
from kcover_portal.console.views.policies.pages import difference as difference, policies as policies, policy as policy
from kcover_portal.console.views.policies.winners import winners as winners

begin_try = tries.begin
cancel_try = tries.cancel
one_try = tries.one
effect = tries.effect
one_effect = tries.one_effect
