"""Signing in with a password or a passkey, throttled and on record; signing out."""

import logging
import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth import authenticate
from django.core import signing
from django.http import HttpRequest
from django.utils.crypto import salted_hmac
from django.views.decorators.debug import sensitive_variables

from kcover import audit, reasons
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import TotpDevice, User
from kcover_portal.accounts.services import failed_attempts, oidc, passkeys, throttle
from kcover_portal.accounts.services.password_hasher import TooManyHashes
from kcover_portal.accounts.services.tokens import Refused
from kcover_portal.config.oidc_settings import Oidc
from kcover_portal.ledger import services as ledger

log = logging.getLogger(__name__)

DEVICE_RETENTION = timedelta(days=90)
SALT = "kcover_portal.accounts.device"


class PasswordsOff(Refused):
    """KCOVER_OIDC_PASSWORDS lets this account sign in through the provider only."""

    def __init__(self) -> None:
        super().__init__(reasons.of("password_sign_in_off"))


@sensitive_variables("password")
def check_password(
    request: HttpRequest, name: str, password: str, *, address: str, device_cookie: str, now: datetime
) -> User | None:
    """Returns the user, or None if the account does not exist, is disabled or has another password.

    The caller asks for a second factor if one is due, then calls ``sign_in``. Raises Throttled and TooManyHashes; both
    have ``retry_after`` in seconds. Raises PasswordsOff if the account can only use single sign-on.
    """
    if _local_sign_in() == "nobody":
        raise PasswordsOff
    attempt = throttle.of_sign_in(name, address=address, device=device_of(device_cookie, name))
    try:
        throttle.charge(attempt, now=now)
    except throttle.Throttled:
        failed_attempts.note(audit.SignInFailed, name, address=address, refused=True, now=now)
        raise
    try:
        user = authenticate(request, username=name, password=password)
    except TooManyHashes:
        throttle.refund(attempt, now=now)
        raise
    if not isinstance(user, User):
        failed_attempts.note(audit.SignInFailed, name, address=address, refused=False, now=now)
        return None
    _require_local_sign_in(user, address=address, now=now)
    throttle.forgive(attempt, now=now)
    log.info("password accepted: user %s, address %s", user.username, address or "unknown")
    return user


def check_passkey(
    answer: passkeys.PasskeyResponse, *, site: passkeys.RelyingParty, address: str, now: datetime
) -> User:
    """Returns the person who signs in with a passkey alone. The caller calls ``sign_in``.

    Raises Refused if the answer is wrong or the account is disabled, PasswordsOff, and Throttled.
    """
    attempt = throttle.of_passkey(address=address)
    try:
        throttle.charge(attempt, now=now)
    except throttle.Throttled:
        failed_attempts.note(audit.SignInFailed, "", address=address, refused=True, now=now)
        raise
    try:
        passkey = passkeys.accept(None, answer, site=site, now=now)
    except Refused:
        throttle.refund(attempt, now=now)
        raise
    if passkey is None or not passkey.user.is_active:
        name = passkey.user.username if passkey else ""
        failed_attempts.note(audit.SignInFailed, name, address=address, refused=False, now=now)
        raise Refused(reasons.of("passkey_refused"))
    _require_local_sign_in(passkey.user, address=address, now=now)
    throttle.forgive(attempt, now=now)
    return passkey.user


def _local_sign_in() -> str:
    """The people who may sign in without the identity provider: everyone, admins or nobody."""
    client: Oidc | None = settings.KCOVER_OIDC
    return client.passwords if client else "everyone"


def _require_local_sign_in(user: User, *, address: str, now: datetime) -> None:
    """Raises PasswordsOff unless the person may sign in without the identity provider."""
    who = _local_sign_in()
    if who == "nobody" or (who == "admins" and not oidc.is_admin_by_hand(user)):
        failed_attempts.note(audit.SignInFailed, user.username, address=address, refused=False, now=now)
        raise PasswordsOff


def sign_in(user: User, *, factor: str, address: str, now: datetime, issuer: str = "") -> None:
    """Records that the person signed in. The caller logs them in. ``factor``, ``issuer``: as in ``audit.SignedIn``."""
    act = audit.SignedIn(user=user.username, address=address, factor=factor, issuer=issuer)
    ledger.record("", act, actor=queries.actor(user), now=now)
    log.info("%s: user %s, address %s, factor %s", act.verb, user.username, address or "unknown", factor or "none")


def sign_out(user: User, *, now: datetime) -> None:
    """Records that the user signs out. The caller ends the session."""
    act = audit.SignedOut(user=user.username)
    ledger.record("", act, actor=queries.actor(user), now=now)
    log.info("%s: user %s", act.verb, user.username)


def device_cookie(user: User) -> str:
    """Returns a signed text for a browser that has just signed in. It only changes how failures are counted.

    It ends with the password and the factors of its time. Otherwise somebody who had the password could collect cookies
    by signing in often, and guess what replaced it with as many counters.
    """
    return signing.dumps([user.username, secrets.token_hex(8), _credentials_of(user)], salt=SALT)


def device_of(cookie: str, name: str) -> str:
    """Returns the browser's id if it signed in to this account within DEVICE_RETENTION, with the present password and
    factors; else "".
    """
    try:
        username, device, credentials = signing.loads(cookie, salt=SALT, max_age=DEVICE_RETENTION)
    except (signing.BadSignature, ValueError, TypeError):
        return ""
    user = queries.find_user(name) if username == name else None
    return str(device) if user is not None and credentials == _credentials_of(user) else ""


def _credentials_of(user: User) -> str:
    """A keyed hash that changes with the password and with each factor."""
    totp = TotpDevice.objects.filter(user=user).values_list("pk", flat=True)
    passkeys_held = user.passkeys.values_list("pk", flat=True)
    parts = [user.password, *map(str, totp), "", *map(str, passkeys_held)]
    return salted_hmac(SALT, "\0".join(parts), algorithm="sha256").hexdigest()[:32]
