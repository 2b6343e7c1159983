"""Accounts that come from another database: their fields, password hashes and second factors, as they were there."""

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.dateparse import parse_datetime

from kcover import audit
from kcover_portal.accounts.models import Passkey, RecoveryCode, TotpDevice, User
from kcover_portal.accounts.services import account_names, sessions, user_errors
from kcover_portal.accounts.services.tokens import Refused
from kcover_portal.ledger import services as ledger

FIELDS: Final = ("first_name", "last_name", "email", "language", "zone", "home")
TOTP, PASSKEYS, CODES = "totp", "passkeys", "recovery_codes"


def make(name: str, fields: Mapping[str, str]) -> User:
    """Creates an account without a password and without a role. The caller records it.

    Raises Refused if the name is taken, malformed or like another one, or a field is invalid.
    """
    if refused := account_names.refusal(name):
        raise Refused(refused)
    user = User(username=name)
    user.set_unusable_password()
    _save(user, fields)
    return user


def change(user: User, fields: Mapping[str, str]) -> None:
    """Changes the fields of an account. Raises Refused if one is invalid."""
    _save(user, fields)


def names_of_factors(user: User) -> list[str]:
    """Which of ``factors_of`` the person has."""
    return [name for name, value in factors_of(user, seed=False).items() if value]


def factors_of(user: User, *, seed: bool = True) -> dict[str, Any]:
    """The second factors as JSON, by kind. ``seed``: with that of the authenticator app, which is decrypted.

    Raises SecretUnreadable.
    """
    totp = getattr(user, "totp", None)
    app = totp and {
        "seed": totp.seed if seed else "",
        "last_step": totp.last_step,
        "created_at": totp.created_at.isoformat(),
    }
    keys = [
        {
            "name": one.name,
            "credential": one.credential,
            "public_key": base64.b64encode(bytes(one.public_key)).decode(),
            "sign_count": one.sign_count,
            "transports": one.transports,
            "created_at": one.created_at.isoformat(),
        }
        for one in sorted(user.passkeys.all(), key=lambda one: one.credential)
    ]
    codes = sorted(one.digest for one in user.recovery_codes.all() if one.used_at is None)
    return {TOTP: app, PASSKEYS: keys, CODES: codes}


def unlock(user: User, password: str, factors: Mapping[str, Any], *, actor: str, now: datetime) -> None:
    """Sets the hash of a password ("" keeps the present one) and the second factors; both as ``factors_of`` gives them.

    The sessions of the account end. Raises KeyError, TypeError and ValueError for factors of another form.
    """
    with transaction.atomic():
        if password:
            user.password = password
            user.save(update_fields=["password"])
            ledger.record("", audit.PasswordChanged(user=user.username), actor=actor, now=now)
        sessions.forget(user)
        if (app := factors.get(TOTP)) is not None:
            TotpDevice.objects.filter(user=user).delete()
            device = TotpDevice(user=user, last_step=app["last_step"], created_at=_time(app["created_at"]))
            device.seed = app["seed"]
            device.save(force_insert=True)
            ledger.record("", audit.FactorEnrolled(user=user.username, factor=TOTP), actor=actor, now=now)
        for key in factors.get(PASSKEYS, ()):
            _add_passkey(user, key, actor=actor, now=now)
        for digest in factors.get(CODES, ()):
            RecoveryCode.objects.get_or_create(user=user, digest=digest)


def _add_passkey(user: User, key: Mapping[str, Any], *, actor: str, now: datetime) -> None:
    fields = {
        "user": user,
        "name": key["name"],
        "public_key": base64.b64decode(key["public_key"], validate=True),
        "sign_count": key["sign_count"],
        "transports": key["transports"],
        "created_at": _time(key["created_at"]),
    }
    _row, made = Passkey.objects.get_or_create(credential=key["credential"], defaults=fields)
    if made:
        act = audit.FactorEnrolled(user=user.username, factor="passkey", name=key["name"])
        ledger.record("", act, actor=actor, now=now)


def _time(text: str) -> datetime:
    found = parse_datetime(text)
    if found is None:
        raise ValueError(text)
    return found


def _save(user: User, fields: Mapping[str, str]) -> None:
    for name, value in fields.items():
        setattr(user, name, value)
    try:
        user.full_clean()
    except ValidationError as error:
        raise Refused(user_errors.reason_of(error, user.username)) from error
    user.save()
