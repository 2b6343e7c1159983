"""Single sign-on: people at an identity provider, their accounts, and the roles of their groups."""

from dataclasses import dataclass
from typing import ClassVar

from kcover import reasons
from kcover.audit import subjects
from kcover.audit.base import Act, register
from kcover.audit.settings import UserAct
from kcover.audit.sign_in import FailedAttempts
from kcover.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityAct(UserAct):
    """An act on the account of a person at an identity provider, whom ``issuer`` and ``subject_id`` name."""

    issuer: str
    subject_id: str
    reason: str = ""

    @property
    def explanation(self) -> Reason | None:
        """The provider and the person there."""
        return reasons.of("identity", issuer=self.issuer, subject=self.subject_id)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityCreated(IdentityAct):
    """The first single sign-on of a person created the account."""

    VERB: ClassVar[str] = "identity.created"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityLinked(IdentityAct):
    """An admin linked an account to a person at the provider."""

    VERB: ClassVar[str] = "identity.linked"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityUnlinked(IdentityAct):
    """An admin took the link back."""

    VERB: ClassVar[str] = "identity.unlinked"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SingleSignOnFailed(FailedAttempts):
    """Single sign-ons that were refused: the tokens were invalid, or the account may not be used."""

    VERB: ClassVar[str] = "user.single_sign_on_failed"

    @property
    def explanation(self) -> Reason | None:
        """The address and the number."""
        address = self.address or reasons.of("several_addresses")
        return reasons.of("single_sign_on_failed", address=address, count=self.count)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SignedOutByProvider(UserAct):
    """The identity provider ended ``count`` sessions of a person (back-channel logout)."""

    VERB: ClassVar[str] = "user.signed_out_by_provider"

    issuer: str
    count: int

    @property
    def explanation(self) -> Reason | None:
        """The provider."""
        return reasons.of("by_provider", issuer=self.issuer)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAct(Act):
    """An act on the role of a group of the identity provider: in a cluster, in a pool of it, or everywhere."""

    group: str
    role: str
    pool: str = ""
    reason: str = ""

    @property
    def subject(self) -> str:
        """The group."""
        return subjects.group(self.group)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMapped(GroupAct):
    """Members of the group get the role at their next sign-in; who already had a role from it has this one at once."""

    VERB: ClassVar[str] = "group.mapped"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUnmapped(GroupAct):
    """Members of the group lost the role at once."""

    VERB: ClassVar[str] = "group.unmapped"
