"""Validations of nodes, and changes of their profiles."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kcover.audit.base import Act, register
from kcover.audit.fleet import Change
from kcover.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationAct(Act):
    """An act on a validation. ``node``: its node if it has one only, so that the node's history shows it."""

    validation: int
    node: str = ""

    @property
    def subject(self) -> str:
        """The validation."""
        return f"validation {self.validation}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRequested(ValidationAct):
    """A validation was requested. ``document``: the profile as it was; ``nodes``: the first names of ``count``."""

    VERB: ClassVar[str] = "validation.requested"

    profile: str
    document: Mapping[str, Any]
    nodes: tuple[str, ...]
    count: int
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationFinished(ValidationAct):
    """The verdict on every node is known.

    ``not_passed``: the states of the first nodes that did not pass; ``not_passed_count``: the number of such nodes.
    """

    VERB: ClassVar[str] = "validation.finished"

    profile: str
    state: str
    count: int
    not_passed: Mapping[str, str] = field(default_factory=dict)
    not_passed_count: int = 0


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationCancelled(ValidationAct):
    """The validation was cancelled before its verdict: by a person, or (``because``) by the portal."""

    VERB: ClassVar[str] = "validation.cancelled"

    profile: str
    reason: str = ""
    because: Reason | None = None


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileChanged(Act):
    """An admin changed what a profile asks for, or went back to the default."""

    VERB: ClassVar[str] = "profile.changed"

    profile: str
    document: Change
    reason: str = ""

    @property
    def subject(self) -> str:
        """The profile."""
        return f"validation profile {self.profile}"
