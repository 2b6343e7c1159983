"""Policies of both kinds: the list, one policy with its revisions, the editor, tries, and actions on a whole policy."""

from kcover_portal.console.views.policies.commands import archive, rollback
from kcover_portal.console.views.policies.editor import edit, rule, validate, vocabulary
from kcover_portal.console.views.policies.packs import (
    dismiss_first_pack,
    first_pack,
    install_pack,
    packs,
    try_pack,
)
from kcover_portal.console.views.policies.pages import difference, policies, policy
from kcover_portal.console.views.policies.tries import begin as begin_try
from kcover_portal.console.views.policies.tries import cancel as cancel_try
from kcover_portal.console.views.policies.tries import one as one_try
from kcover_portal.console.views.policies.winners import winners

__all__ = [
    "archive",
    "begin_try",
    "cancel_try",
    "difference",
    "dismiss_first_pack",
    "edit",
    "first_pack",
    "install_pack",
    "one_try",
    "packs",
    "policies",
    "policy",
    "rollback",
    "rule",
    "try_pack",
    "validate",
    "vocabulary",
    "winners",
]
