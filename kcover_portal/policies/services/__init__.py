"""Policies in and out: YAML with line-exact mistakes, revisions that never change, what changed between two of them."""

from kcover_portal.policies.services.comparing import Change, Difference, compare, compare_revisions, two_revisions
from kcover_portal.policies.services.exporting import export
from kcover_portal.policies.services.reading import Invalid, Parsed, Reading, draft, validate
from kcover_portal.policies.services.revising import Conflict, NotFound, apply, delete, rollback
from kcover_portal.policies.services.shipped import install_defaults, missing_defaults

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
