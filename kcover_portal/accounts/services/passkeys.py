"""Passkeys (WebAuthn). The portal stores public keys only, and asks for no attestation.

A passkey is a second factor after the password, or signs in alone if it checked the person (fingerprint, face or PIN).
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from django.conf import settings
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.utils.crypto import salted_hmac
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode

from kcover import audit, reasons
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import Passkey, User
from kcover_portal.accounts.services import challenges
from kcover_portal.accounts.services.tokens import Refused
from kcover_portal.config import deferred
from kcover_portal.ledger import services as ledger

if TYPE_CHECKING:
    import webauthn
    from webauthn.helpers import structs
else:
    webauthn, structs = deferred.Module("webauthn"), deferred.Module("webauthn.helpers.structs")

log = logging.getLogger(__name__)

RP_NAME = "kcover portal"
MAX_PASSKEYS = 10  # of one person
MAX_TRANSPORTS = 8
SALT = "kcover_portal.accounts.passkey_user"

REGISTER = "register"  # add a passkey to an account
SIGN_IN = "sign-in"  # sign in with a passkey alone
CONFIRM = "confirm"  # second factor of a known person

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RelyingParty:
    """The portal as a browser knows it: ``rp_id`` is its host name, ``origin`` is scheme, host and port.

    ``session`` is a hash of the browser's session, to which challenges about a known person are bound.
    """

    rp_id: str
    origin: str
    session: str


@dataclass(frozen=True, slots=True)
class PasskeyResponse:
    """The browser's answer to a challenge, as JSON, and the signed text of the challenge."""

    credential: str
    state: str


def site_of(request: HttpRequest) -> RelyingParty:
    """Returns the site of KCOVER_PUBLIC_URL, or of the request without one."""
    parts = urlsplit(settings.KCOVER_PUBLIC_URL or f"{request.scheme}://{request.get_host()}")
    session = salted_hmac(SALT, request.session.session_key or "", algorithm="sha256").hexdigest()[:32]
    return RelyingParty(rp_id=parts.hostname or "", origin=f"{parts.scheme}://{parts.netloc}", session=session)


def options(purpose: str, user: User | None, site: RelyingParty, *, now: datetime) -> dict[str, Any]:
    """Returns ``options`` for the browser's WebAuthn call and ``state``, the signed text of the challenge."""
    challenge, state = challenges.issue(_asker(purpose, site), user, now=now)
    if purpose == REGISTER:
        assert user is not None
        made: Any = webauthn.generate_registration_options(
            rp_id=site.rp_id,
            rp_name=RP_NAME,
            user_name=user.username,
            user_id=salted_hmac(SALT, str(user.pk), algorithm="sha256").digest(),
            challenge=challenge,
            authenticator_selection=structs.AuthenticatorSelectionCriteria(
                resident_key=structs.ResidentKeyRequirement.PREFERRED,
                user_verification=structs.UserVerificationRequirement.PREFERRED,
            ),
            exclude_credentials=_descriptors(user),
        )
    else:
        alone, needs = purpose == SIGN_IN, structs.UserVerificationRequirement
        made = webauthn.generate_authentication_options(
            rp_id=site.rp_id,
            challenge=challenge,
            allow_credentials=_descriptors(user) if user else [],
            user_verification=needs.REQUIRED if alone else needs.PREFERRED,
        )
    return {"options": json.loads(webauthn.options_to_json(made)), "state": state}


def register(user: User, answer: PasskeyResponse, *, name: str, site: RelyingParty, now: datetime) -> Passkey:
    """Adds the passkey, on record. Raises Refused if it is invalid or known, or the person has MAX_PASSKEYS."""
    challenge = challenges.read(answer.state, _asker(REGISTER, site), user, now=now)
    if user.passkeys.count() >= MAX_PASSKEYS:
        raise Refused(reasons.of("too_many_passkeys", limit=MAX_PASSKEYS))
    verified = _checked(
        lambda: webauthn.verify_registration_response(
            credential=answer.credential,
            expected_challenge=challenge,
            expected_rp_id=site.rp_id,
            expected_origin=site.origin,
        )
    )
    transports = webauthn.helpers.parse_registration_credential_json(answer.credential).response.transports or []
    try:
        with transaction.atomic():
            if not challenges.spend(challenge, now=now):
                raise Refused(reasons.of("challenge_expired"))
            passkey = Passkey.objects.create(
                user=user,
                name=name,
                credential=urlsafe_base64_encode(verified.credential_id),
                public_key=verified.credential_public_key,
                sign_count=verified.sign_count,
                transports=[str(transport.value) for transport in transports[:MAX_TRANSPORTS]],
                created_at=now,
            )
            act = audit.FactorEnrolled(user=user.username, factor="passkey", name=name)
            ledger.record("", act, actor=queries.actor(user), now=now)
    except IntegrityError as error:
        raise Refused(reasons.of("passkey_exists")) from error
    log.info("%s: user %s, passkey", act.verb, user.username)
    return passkey


def accept(user: User | None, answer: PasskeyResponse, *, site: RelyingParty, now: datetime) -> Passkey | None:
    """Returns the passkey that answered, and notes its use; None if the answer is wrong or repeated.

    ``user`` None: the person signs in with the passkey alone. Raises Refused if the challenge has expired, or
    if the passkey did not check the person although it is to sign in alone.
    """
    purpose = CONFIRM if user else SIGN_IN
    challenge = challenges.read(answer.state, _asker(purpose, site), user, now=now)
    try:
        given = _checked(lambda: webauthn.helpers.parse_authentication_credential_json(answer.credential))
    except Refused:
        return None
    known = Passkey.objects.select_related("user").filter(credential=urlsafe_base64_encode(given.raw_id))
    passkey = (known.filter(user=user) if user else known).first()
    if passkey is None:
        return None
    try:
        verified = _checked(
            lambda: webauthn.verify_authentication_response(
                credential=given,
                expected_challenge=challenge,
                expected_rp_id=site.rp_id,
                expected_origin=site.origin,
                credential_public_key=bytes(passkey.public_key),
                credential_current_sign_count=passkey.sign_count,
            )
        )
    except Refused:
        return None
    if user is None and not verified.user_verified:
        raise Refused(reasons.of("passkey_unverified"))
    with transaction.atomic():
        if not challenges.spend(challenge, now=now):
            return None
        same = Passkey.objects.filter(pk=passkey.pk, sign_count=passkey.sign_count)
        if not same.update(sign_count=verified.new_sign_count, last_used_at=now):
            return None  # another process accepted an answer of this passkey meanwhile
    return passkey


def _asker(purpose: str, site: RelyingParty) -> str:
    """The purpose of a challenge, with the session that asks: the key of a session changes when the person signs in."""
    return purpose if purpose == SIGN_IN else f"{purpose} {site.session}"


def _descriptors(user: User) -> "list[structs.PublicKeyCredentialDescriptor]":
    held = user.passkeys.values_list("credential", flat=True)
    return [structs.PublicKeyCredentialDescriptor(id=urlsafe_base64_decode(credential)) for credential in held]


def _checked(check: Callable[[], T]) -> T:
    """Runs a check of bytes from outside. Raises Refused for whatever the parsers of the library raise."""
    try:
        return check()
    except Exception as error:  # a malformed answer raises errors of JSON, CBOR, base64 and cryptography
        log.info("passkey refused: %s: %s", type(error).__name__, str(error)[:200])
        raise Refused(reasons.of("passkey_refused")) from error
