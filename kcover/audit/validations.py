"""Validations of nodes, and changes of their profiles."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kcover.audit.base import Act
from kcover.audit.fleet import Change
from kcover.reasons import Reason


class ValidationAct(Act, subject="validation {validation}"):
    """An act on a validation. ``node``: its node if it has one only, so that the node's history shows it."""

    validation: int
    node: str = ""


class ValidationRequested(ValidationAct, verb="validation.requested"):
    """A validation was requested. ``document``: the profile as it was; ``nodes``: the first names of ``count``."""

    profile: str
    document: Mapping[str, Any]
    nodes: tuple[str, ...]
    count: int
    reason: str = ""


class ValidationFinished(ValidationAct, verb="validation.finished"):
    """The verdict on every node is known.

    ``not_passed``: the states of the first nodes that did not pass; ``not_passed_count``: the number of such nodes.
    """

    profile: str
    state: str
    count: int
    not_passed: Mapping[str, str] = field(default_factory=dict)
    not_passed_count: int = 0


class ValidationCancelled(ValidationAct, verb="validation.cancelled"):
    """The validation was cancelled before its verdict: by a person, or (``because``) by the portal."""

    profile: str
    reason: str = ""
    because: Reason | None = None


class ProfileChanged(Act, verb="profile.changed", subject="validation profile {profile}"):
    """An admin changed what a profile asks for, or went back to the default."""

    profile: str
    document: Change
    reason: str = ""
