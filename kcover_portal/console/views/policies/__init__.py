"""Policies of both kinds: the list and one with its revisions, the editor, and acts on a whole policy."""

from kcover_portal.console.views.policies.acting import archive, install_defaults, rollback
from kcover_portal.console.views.policies.editing import edit, validate
from kcover_portal.console.views.policies.showing import difference, policies, policy

__all__ = ["archive", "difference", "edit", "install_defaults", "policies", "policy", "rollback", "validate"]
