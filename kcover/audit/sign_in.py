"""Sign-ins, sessions, and whether an account may be used."""

from kcover import reasons
from kcover.audit import subjects
from kcover.audit.settings import UserAct
from kcover.reasons import Reason


class SignedIn(UserAct, verb="user.signed_in"):
    """A person signed in from ``address``.

    ``factor``: the second factor; "" if none was needed. ``issuer``: the identity provider of a single sign-on.
    """

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


class SignedOut(UserAct, verb="user.signed_out"):
    """A person signed out."""


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
        return subjects.user(self.user) if self.user else "unknown user"

    @property
    def explanation(self) -> Reason | None:
        """The address and the numbers."""
        if not self.address:
            return reasons.of("failed_attempts_elsewhere", count=self.count, refused=self.refused)
        return reasons.of("failed_attempts", address=self.address, count=self.count, refused=self.refused)


class SignInFailed(FailedAttempts, verb="user.sign_in_failed"):
    """Attempts to sign in failed."""


class PasswordChangeFailed(FailedAttempts, verb="password.change_failed"):
    """A signed-in person, or somebody with their session, gave a wrong old password."""


class VendorSignatureFailed(FailedAttempts, verb="vendor_event.signature_failed"):
    """Events of a vendor had a wrong signature. ``user``: the name of the sink, "" if there is no such sink."""

    @property
    def subject(self) -> str:
        return f"audit sink {self.user}" if self.user else "unknown audit sink"


class SessionsEnded(UserAct, verb="user.sessions_ended"):
    """``count`` sessions of a user were ended by hand, by the user or by an admin."""

    count: int
    reason: str = ""


class UserDisabled(UserAct, verb="user.disabled"):
    """An account was disabled: no sign-in, no sessions, and its tokens are refused."""

    reason: str = ""


class UserEnabled(UserAct, verb="user.enabled"):
    """A disabled account may be used again."""

    reason: str = ""
