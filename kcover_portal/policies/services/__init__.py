"""Publishes, validates, compares and exports policies."""

from kcover_portal.policies.services.diff import Change, Difference, compare, compare_revisions, two_revisions
from kcover_portal.policies.services.export import export
from kcover_portal.policies.services.revisions import Conflict, NotFound, apply, delete, rollback
from kcover_portal.policies.services.shipped import install_defaults, missing_defaults
from kcover_portal.policies.services.validation import Invalid, Parsed, Reading, draft, validate

__all__ = [
    "Change",
    "Conflict",
    "Difference",
    "Invalid",
    "NotFound",
    "Parsed",
    "Reading",
    "apply",
    "compare",
    "compare_revisions",
    "delete",
    "draft",
    "export",
    "install_defaults",
    "missing_defaults",
    "rollback",
    "two_revisions",
    "validate",
]
