"""Single sign-on: people at an identity provider, their accounts, and the roles of their groups."""

from kcover import reasons
from kcover.audit import subjects
from kcover.audit.base import Act
from kcover.audit.settings import UserAct
from kcover.audit.sign_in import FailedAttempts
from kcover.reasons import Reason


class IdentityAct(UserAct):
    """An act on the account of a person at an identity provider, whom ``issuer`` and ``subject_id`` name."""

    issuer: str
    subject_id: str
    reason: str = ""

    @property
    def explanation(self) -> Reason | None:
        """The provider and the person there."""
        return reasons.of("identity", issuer=self.issuer, subject=self.subject_id)


class IdentityCreated(IdentityAct, verb="identity.created"):
    """The first single sign-on of a person created the account."""


class IdentityLinked(IdentityAct, verb="identity.linked"):
    """An admin linked an account to a person at the provider."""


class IdentityUnlinked(IdentityAct, verb="identity.unlinked"):
    """An admin took the link back."""


class SingleSignOnFailed(FailedAttempts, verb="user.single_sign_on_failed"):
    """Single sign-ons that were refused: the tokens were invalid, or the account may not be used."""

    @property
    def explanation(self) -> Reason | None:
        """The address and the number."""
        address = self.address or reasons.of("several_addresses")
        return reasons.of("single_sign_on_failed", address=address, count=self.count)


class SignedOutByProvider(UserAct, verb="user.signed_out_by_provider"):
    """The identity provider ended ``count`` sessions of a person (back-channel logout)."""

    issuer: str
    count: int

    @property
    def explanation(self) -> Reason | None:
        return reasons.of("by_provider", issuer=self.issuer)


class GroupAct(Act):
    """An act on the role of a group of the identity provider: in a cluster, in a pool of it, or everywhere."""

    group: str
    role: str
    pool: str = ""
    reason: str = ""

    @property
    def subject(self) -> str:
        return subjects.group(self.group)


class GroupMapped(GroupAct, verb="group.mapped"):
    """Members of the group get the role at their next sign-in; who already had a role from it has this one at once."""


class GroupUnmapped(GroupAct, verb="group.unmapped"):
    """Members of the group lost the role at once."""
