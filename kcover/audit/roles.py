"""Custom roles, and the roles of people."""

from kcover.audit import subjects
from kcover.audit.base import Act
from kcover.audit.settings import UserAct


class BindingAct(UserAct):
    """A role of a user: in the cluster of the entry, in one ``pool`` of it, or everywhere.

    ``source``: what gave it besides people, such as ``oidc``.
    """

    role: str
    pool: str = ""
    source: str = ""


class RoleGiven(BindingAct, verb="role.given"):
    """A role was given to a user."""


class RoleTaken(BindingAct, verb="role.taken"):
    """A role was taken from a user."""


class RoleAct(Act):
    """An act on a custom role; ``contains``: its verbs after the act, or when it was deleted."""

    role: str
    contains: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        return subjects.role(self.role)


class RoleMade(RoleAct, verb="role.created"):
    """A custom role was created."""


class RoleChanged(RoleAct, verb="role.changed"):
    """A custom role was changed; ``before``: what it contained."""

    before: tuple[str, ...] = ()


class RoleDeleted(RoleAct, verb="role.deleted"):
    """A custom role was deleted."""
