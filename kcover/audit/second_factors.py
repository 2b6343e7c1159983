"""Second factors of people, and invitations."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from kcover import reasons
from kcover.audit.base import register
from kcover.audit.settings import UserAct
from kcover.audit.sign_in import FailedAttempts
from kcover.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
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


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class FactorConfirmed(FactorAct):
    """A signed-in person gave a second factor, to do something that asks for one."""

    VERB: ClassVar[str] = "factor.confirmed"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class FactorEnrolled(FactorAct):
    """A person added a second factor to their account."""

    VERB: ClassVar[str] = "factor.enrolled"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class FactorRemoved(FactorAct):
    """A person removed a second factor from their account."""

    VERB: ClassVar[str] = "factor.removed"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class FactorFailed(FailedAttempts):
    """Somebody who gave the password, or has the session, gave a wrong second factor."""

    VERB: ClassVar[str] = "factor.failed"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class FactorsReset(UserAct):
    """All second factors and recovery codes of a user were removed by somebody else, and the sessions ended."""

    VERB: ClassVar[str] = "factor.reset"

    totp: bool
    passkeys: int
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryCodesMade(UserAct):
    """``count`` new recovery codes replaced the earlier ones."""

    VERB: ClassVar[str] = "factor.recovery_codes"

    count: int


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class UserInvited(UserAct):
    """A link was created by which the user chooses a first password. It replaces earlier links."""

    VERB: ClassVar[str] = "user.invited"

    expires_at: datetime


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class InvitationAccepted(UserAct):
    """The invited person chose a password."""

    VERB: ClassVar[str] = "user.invitation_accepted"

    address: str = ""

    @property
    def explanation(self) -> Reason | None:
        """The address; None if it is unknown."""
        return reasons.of("from_address", address=self.address) if self.address else None
