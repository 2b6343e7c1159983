"""Codes of an authenticator app: TOTP (RFC 6238) with six digits, 30 seconds and SHA-1, which every app supports.

A code is accepted in its own step and in the steps before and after it, because clocks differ. Each step counts once:
the step of an accepted code is stored, and no code of that step or an earlier one is accepted again.
"""

from datetime import datetime

import pyotp
from django.core import signing
from django.utils.crypto import constant_time_compare
from django.views.decorators.debug import sensitive_variables

from kcover import reasons
from kcover_portal.accounts.models import TotpDevice, User
from kcover_portal.accounts.services.tokens import Refused
from kcover_portal.encryption import SecretUnreadable

STEP_SECONDS = 30
DIGITS = 6
DRIFT = 1  # steps before and after the current one
ISSUER = "kcover portal"
SETUP_SECONDS = 900  # between showing a seed and the first code of it
SALT = "kcover_portal.accounts.totp"


@sensitive_variables()
def new_setup(user: User, *, now: datetime) -> str:
    """Returns a signed text with a new seed, for the form that shows it. Nothing is stored until ``enrol``."""
    return signing.dumps([user.pk, pyotp.random_base32(), int(now.timestamp())], salt=SALT)


@sensitive_variables()
def seed_of(setup: str, user: User, *, now: datetime) -> str:
    """Returns the seed of ``new_setup``. Raises Refused if it is older than SETUP_SECONDS or of another person."""
    try:
        owner, seed, at = signing.loads(setup, salt=SALT)
    except (signing.BadSignature, ValueError, TypeError) as error:
        raise Refused(reasons.of("setup_expired")) from error
    if owner != user.pk or not 0 <= now.timestamp() - at <= SETUP_SECONDS:
        raise Refused(reasons.of("setup_expired"))
    return str(seed)


@sensitive_variables()
def address_of(user: User, seed: str) -> str:
    """Returns the ``otpauth:`` address that apps read from a QR code."""
    return pyotp.TOTP(seed, digits=DIGITS, interval=STEP_SECONDS).provisioning_uri(
        name=user.username, issuer_name=ISSUER
    )


@sensitive_variables()
def enrol(user: User, seed: str, code: str, *, now: datetime) -> bool:
    """Stores the seed if the code is a current one of it, and counts the code as used. Returns whether it is."""
    step = _step_of(seed, code, now=now)
    if step is None:
        return False
    TotpDevice.objects.create(user=user, seed=seed, last_step=step, created_at=now)
    return True


@sensitive_variables()
def accept(user: User, code: str, *, now: datetime) -> bool:
    """Returns whether the code is a current one of the person's app that was not used, and counts it as used.

    Of two processes that check the same code, one gets True. Raises Refused if the seed cannot be decrypted.
    """
    device = TotpDevice.objects.filter(user=user).first()
    if device is None:
        return False
    try:
        seed = device.seed
    except SecretUnreadable as error:
        raise Refused(reasons.of("seed_unreadable")) from error
    step = _step_of(seed, code, now=now)
    if step is None:
        return False
    unused = TotpDevice.objects.filter(pk=device.pk, last_step__lt=step)
    return unused.update(last_step=step, last_used_at=now) == 1


def _step_of(seed: str, code: str, *, now: datetime) -> int | None:
    """The step to which the code belongs, or None."""
    current = int(now.timestamp()) // STEP_SECONDS
    app = pyotp.TOTP(seed, digits=DIGITS, interval=STEP_SECONDS)
    near = range(current - DRIFT, current + DRIFT + 1)
    found = [step for step in near if constant_time_compare(app.generate_otp(step), code)]
    return max(found, default=None)
