"""Sign-ins, sessions, and whether an account may be used."""

from dataclasses import dataclass
from typing import ClassVar

from kcover import reasons
from kcover.audit import subjects
from kcover.audit.base import register
from kcover.audit.settings import UserAct
from kcover.reasons import Reason


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn(UserAct):
    """A person signed in from ``address``.

    ``factor``: the second factor; "" if none was needed. ``issuer``: the identity provider of a single sign-on.
    """

    VERB: ClassVar[str] = "user.signed_in"

    address: str = ""
    factor: str = ""
    issuer: str = ""

    @property
    def explanation(self) -> Reason | None:
        """The factor, the address and the provider, as far as they are known."""
        factor = reasons.of(f"factor.{self.factor}") if self.factor else None
        address = reasons.of("from_address", address=self.address) if self.address else None
        issuer = reasons.of("by_provider", issuer=self.issuer) if self.issuer else None
        return reasons.both(factor, address, issuer) if factor or address or issuer else None


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SignedOut(UserAct):
    """A person signed out."""

    VERB: ClassVar[str] = "user.signed_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempts(UserAct):
    """``count`` wrong passwords since the last entry of this user and address.

    ``user`` is empty if there is no such account: people type passwords into the wrong field. ``address`` is empty if
    the entry counts several accounts and addresses. ``refused``: how many of them the throttle refused unchecked.
    """

    address: str = ""
    count: int = 1
    refused: int = 0

    @property
    def subject(self) -> str:
        """The user."""
        return subjects.user(self.user) if self.user else "unknown user"

    @property
    def explanation(self) -> Reason | None:
        """The address and the numbers."""
        if not self.address:
            return reasons.of("failed_attempts_elsewhere", count=self.count, refused=self.refused)
        return reasons.of("failed_attempts", address=self.address, count=self.count, refused=self.refused)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SignInFailed(FailedAttempts):
    """Attempts to sign in failed."""

    VERB: ClassVar[str] = "user.sign_in_failed"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordChangeFailed(FailedAttempts):
    """A signed-in person, or somebody with their session, gave a wrong old password."""

    VERB: ClassVar[str] = "password.change_failed"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class VendorSignatureFailed(FailedAttempts):
    """Events of a vendor had a wrong signature. ``user``: the name of the sink, "" if there is no such sink."""

    VERB: ClassVar[str] = "vendor_event.signature_failed"

    @property
    def subject(self) -> str:
        """The sink."""
        return f"audit sink {self.user}" if self.user else "unknown audit sink"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsEnded(UserAct):
    """``count`` sessions of a user were ended by hand, by the user or by an admin."""

    VERB: ClassVar[str] = "user.sessions_ended"

    count: int
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class UserDisabled(UserAct):
    """An account was disabled: no sign-in, no sessions, and its tokens are refused."""

    VERB: ClassVar[str] = "user.disabled"

    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class UserEnabled(UserAct):
    """A disabled account may be used again."""

    VERB: ClassVar[str] = "user.enabled"

    reason: str = ""
