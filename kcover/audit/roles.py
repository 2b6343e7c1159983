"""Custom roles, and the roles of people."""

from dataclasses import dataclass
from typing import ClassVar

from kcover.audit import subjects
from kcover.audit.base import Act, register
from kcover.audit.settings import UserAct


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingAct(UserAct):
    """A role of a user: in the cluster of the entry, in one ``pool`` of it, or everywhere.

    ``source``: what gave it besides people, such as ``oidc``.
    """

    role: str
    pool: str = ""
    source: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RoleGiven(BindingAct):
    """A role was given to a user."""

    VERB: ClassVar[str] = "role.given"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTaken(BindingAct):
    """A role was taken from a user."""

    VERB: ClassVar[str] = "role.taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleAct(Act):
    """An act on a custom role; ``contains``: its verbs after the act, or when it was deleted."""

    role: str
    contains: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The role."""
        return subjects.role(self.role)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RoleMade(RoleAct):
    """A custom role was created."""

    VERB: ClassVar[str] = "role.created"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChanged(RoleAct):
    """A custom role was changed; ``before``: what it contained."""

    VERB: ClassVar[str] = "role.changed"

    before: tuple[str, ...] = ()


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RoleDeleted(RoleAct):
    """A custom role was deleted."""

    VERB: ClassVar[str] = "role.deleted"
