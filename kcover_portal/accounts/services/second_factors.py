"""Second factors of a person: checked at sign-in and before grave actions, removed, reset. On record."""

import logging
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.views.decorators.debug import sensitive_variables

from kcover import audit, reasons
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import Passkey, TotpDevice, User
from kcover_portal.accounts.services import failed_attempts, passkeys, recovery_codes, sessions, throttle, totp
from kcover_portal.accounts.services.tokens import Refused
from kcover_portal.ledger import services as ledger

log = logging.getLogger(__name__)

TOTP, PASSKEY, RECOVERY_CODE = "totp", "passkey", "recovery_code"


@dataclass(frozen=True, slots=True)
class SubmittedFactor:
    """A second factor as sent by a person: a code, or the answer of a passkey."""

    code: str = ""
    passkey: passkeys.PasskeyResponse | None = None


@sensitive_variables("given")
def check(
    user: User,
    given: SubmittedFactor,
    *,
    attempt: throttle.Attempt,
    site: passkeys.RelyingParty,
    address: str,
    now: datetime,
) -> str:
    """Returns the factor that was accepted: totp, passkey or recovery_code. Each code and answer counts once.

    Raises Refused for a wrong factor, and Throttled after several. Both are on record.
    """
    try:
        throttle.charge(attempt, now=now)
    except throttle.Throttled:
        failed_attempts.note(audit.FactorFailed, user.username, address=address, refused=True, now=now)
        raise
    try:
        factor = _factor_of(user, given, site=site, now=now)
    except Refused:
        throttle.refund(attempt, now=now)
        raise
    if not factor:
        failed_attempts.note(audit.FactorFailed, user.username, address=address, refused=False, now=now)
        raise Refused(reasons.of("passkey_refused" if given.passkey else "factor_wrong"))
    throttle.forgive(attempt, now=now)
    return factor


@sensitive_variables("given")
def _factor_of(user: User, given: SubmittedFactor, *, site: passkeys.RelyingParty, now: datetime) -> str:
    """The factor that was given, or "" if it is wrong. A recovery code replaces a factor; alone it is none."""
    if not queries.has_second_factor(user):
        return ""
    if given.passkey is not None:
        return PASSKEY if passkeys.accept(user, given.passkey, site=site, now=now) else ""
    code = given.code.replace(" ", "")
    if recovery_codes.SHAPE.fullmatch(code):
        return RECOVERY_CODE if recovery_codes.accept(user, code, now=now) else ""
    return TOTP if totp.accept(user, code, now=now) else ""


@sensitive_variables("setup", "code")
def enrol_totp(user: User, setup: str, code: str, *, now: datetime) -> None:
    """Adds the app whose seed is in ``setup`` (``totp.new_setup``), if ``code`` is a current one of it. On record.

    Raises Refused.
    """
    seed = totp.seed_of(setup, user, now=now)
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)
        if TotpDevice.objects.filter(user=user).exists():
            raise Refused(reasons.of("totp_exists"))
        if not totp.enrol(user, seed, code.replace(" ", ""), now=now):
            raise Refused(reasons.of("totp_code_wrong"))
        act = audit.FactorEnrolled(user=user.username, factor=TOTP)
        ledger.record("", act, actor=queries.actor(user), now=now)
    log.info("%s: user %s, %s", act.verb, user.username, TOTP)


def after_first(user: User, *, keep_session: str, now: datetime) -> list[str]:
    """Returns recovery codes if the person has none, after a factor was added. Then the other sessions end, because
    they were opened without a factor.
    """
    if user.recovery_codes.exists():
        return []
    sessions.forget(user, keep=keep_session)
    return recovery_codes.make(user, actor=queries.actor(user), now=now)


def remove_totp(user: User, *, now: datetime) -> None:
    """Removes the app of the person, on record. Raises Refused if their role needs it."""
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)
        _refuse_last(user)
        if TotpDevice.objects.filter(user=user).delete()[0]:
            _removed(user, audit.FactorRemoved(user=user.username, factor=TOTP), now=now)


def remove_passkey(user: User, passkey: Passkey, *, now: datetime) -> None:
    """Removes a passkey of the person, on record. Raises Refused if their role needs it."""
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)
        _refuse_last(user)
        if user.passkeys.filter(pk=passkey.pk).delete()[0]:
            _removed(user, audit.FactorRemoved(user=user.username, factor=PASSKEY, name=passkey.name), now=now)


def reset(user: User, *, actor: str, now: datetime, reason: str = "") -> None:
    """Removes all second factors and recovery codes of somebody and ends their sessions, on record."""
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)
        removed = TotpDevice.objects.filter(user=user).delete()[0]
        act = audit.FactorsReset(user=user.username, totp=bool(removed), passkeys=user.passkeys.count(), reason=reason)
        user.passkeys.all().delete()
        user.recovery_codes.all().delete()
        sessions.forget(user)
        ledger.record("", act, actor=actor, now=now)
    log.warning("%s: user %s, by %s", act.verb, user.username, actor)


def _refuse_last(user: User) -> None:
    count = user.passkeys.count() + TotpDevice.objects.filter(user=user).count()
    if count == 1 and queries.second_factor_required(user):
        raise Refused(reasons.of("last_factor"))


def _removed(user: User, act: audit.FactorRemoved, *, now: datetime) -> None:
    if not queries.has_second_factor(user):
        user.recovery_codes.all().delete()
    ledger.record("", act, actor=queries.actor(user), now=now)
    log.info("%s: user %s, %s", act.verb, user.username, act.factor)
