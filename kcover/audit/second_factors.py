"""Second factors of people, and invitations."""

from datetime import datetime

from kcover import reasons
from kcover.audit.settings import UserAct
from kcover.audit.sign_in import FailedAttempts
from kcover.reasons import Reason


class FactorAct(UserAct):
    """An act with one second factor. ``factor``: totp, passkey or recovery_code; ``name``: of the passkey."""

    factor: str
    name: str = ""
    address: str = ""

    @property
    def explanation(self) -> Reason | None:
        """The factor, and the passkey's name and the address if they are known."""
        factor = reasons.of("passkey_named", name=self.name) if self.name else reasons.of(f"factor.{self.factor}")
        return reasons.both(factor, reasons.of("from_address", address=self.address) if self.address else None)


class FactorConfirmed(FactorAct, verb="factor.confirmed"):
    """A signed-in person gave a second factor, to do something that asks for one."""


class FactorEnrolled(FactorAct, verb="factor.enrolled"):
    """A person added a second factor to their account."""


class FactorRemoved(FactorAct, verb="factor.removed"):
    """A person removed a second factor from their account."""


class FactorFailed(FailedAttempts, verb="factor.failed"):
    """Somebody who gave the password, or has the session, gave a wrong second factor."""


class FactorsReset(UserAct, verb="factor.reset"):
    """All second factors and recovery codes of a user were removed by somebody else, and the sessions ended."""

    totp: bool
    passkeys: int
    reason: str = ""


class RecoveryCodesMade(UserAct, verb="factor.recovery_codes"):
    """``count`` new recovery codes replaced the earlier ones."""

    count: int


class UserInvited(UserAct, verb="user.invited"):
    """A link was created by which the user chooses a first password. It replaces earlier links."""

    expires_at: datetime


class InvitationAccepted(UserAct, verb="user.invitation_accepted"):
    """The invited person chose a password."""

    address: str = ""

    @property
    def explanation(self) -> Reason | None:
        """The address; None if it is unknown."""
        return reasons.of("from_address", address=self.address) if self.address else None
