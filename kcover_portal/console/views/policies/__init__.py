"""Policies of both kinds: the list, one policy with its revisions, the editor, and actions on a whole policy."""

from kcover_portal.console.views.policies.commands import archive, install_defaults, rollback
from kcover_portal.console.views.policies.editor import edit, validate
from kcover_portal.console.views.policies.pages import difference, policies, policy

__all__ = ["archive", "difference", "edit", "install_defaults", "policies", "policy", "rollback", "validate"]
