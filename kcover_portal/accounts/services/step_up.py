"""Step-up: a grave action asks a person for a second factor that is at most ten minutes old.

It asks only people who have a factor, or whose role needs one. Tokens are not asked: they are bound by their scopes.
Nothing asks before a pause.
"""

import enum
import logging
from datetime import datetime, timedelta

from django.contrib.sessions.backends.base import SessionBase
from django.views.decorators.debug import sensitive_variables

from kcover import audit
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import User
from kcover_portal.accounts.services import passkeys, people, second_factors, throttle
from kcover_portal.ledger import services as ledger

log = logging.getLogger(__name__)

STEP_UP_LIFETIME = timedelta(minutes=10)
FACTOR_AT = "factor_at"  # in the session: when a second factor was last given, as a POSIX time
PASSWORD_AT = "password_at"  # in the session: when the password was last given


class RequiredConfirmation(enum.Enum):
    """The confirmation that a person owes before the action."""

    FACTOR = enum.auto()  # give a second factor
    ENROLMENT = enum.auto()  # add one, because the role needs it
    PASSWORD = enum.auto()  # give the password; only before a first factor is added


def due(user: User, session: SessionBase, *, now: datetime) -> RequiredConfirmation | None:
    """Returns what is due before a grave action; None if nothing is."""
    if _is_fresh(session, FACTOR_AT, now=now):
        return None
    if queries.has_second_factor(user):
        return RequiredConfirmation.FACTOR
    return RequiredConfirmation.ENROLMENT if queries.second_factor_required(user) else None


def due_for_factors(user: User, session: SessionBase, *, now: datetime) -> RequiredConfirmation | None:
    """Returns what is due before the person changes their own factors; None if nothing is."""
    if queries.has_second_factor(user):
        return None if _is_fresh(session, FACTOR_AT, now=now) else RequiredConfirmation.FACTOR
    return None if _is_fresh(session, PASSWORD_AT, now=now) else RequiredConfirmation.PASSWORD


@sensitive_variables("given")
def confirm(
    user: User,
    session: SessionBase,
    given: second_factors.SubmittedFactor,
    *,
    site: passkeys.RelyingParty,
    address: str,
    now: datetime,
) -> None:
    """Checks the factor and notes it in the session, on record. Raises Refused and Throttled."""
    attempt = throttle.of_step_up(user)
    factor = second_factors.check(user, given, attempt=attempt, site=site, address=address, now=now)
    act = audit.FactorConfirmed(user=user.username, factor=factor, address=address)
    ledger.record("", act, actor=queries.actor(user), now=now)
    log.info("%s: user %s, %s", act.verb, user.username, factor)
    note(session, FACTOR_AT, now=now)


@sensitive_variables("password")
def confirm_password(user: User, session: SessionBase, password: str, *, address: str, now: datetime) -> None:
    """Checks the password and notes it in the session. Raises FieldError, Throttled and TooManyHashes."""
    people.check_own_password(user, password, field="password", address=address, now=now)
    note(session, PASSWORD_AT, now=now)


def note(session: SessionBase, key: str, *, now: datetime) -> None:
    """Notes in the session that a factor (FACTOR_AT) or the password (PASSWORD_AT) was given."""
    session[key] = now.timestamp()


def _is_fresh(session: SessionBase, key: str, *, now: datetime) -> bool:
    at = session.get(key)
    return isinstance(at, float | int) and 0 <= now.timestamp() - at <= STEP_UP_LIFETIME.total_seconds()
