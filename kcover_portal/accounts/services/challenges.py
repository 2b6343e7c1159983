"""WebAuthn challenges: signed, valid for five minutes, and answered once.

A page carries its challenge as a signed text, so that asking for one stores nothing. The digest of an answered
challenge is stored until it has expired.
"""

import hashlib
import secrets
from datetime import datetime, timedelta

from django.core import signing
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode

from kcover import reasons
from kcover_portal.accounts.models import SpentChallenge, User
from kcover_portal.accounts.services.tokens import Refused

CHALLENGE_LIFETIME = timedelta(minutes=5)
SALT = "kcover_portal.accounts.challenge"


def issue(purpose: str, user: User | None, *, now: datetime) -> tuple[bytes, str]:
    """Returns a new challenge, and the signed text by which ``read`` finds it again."""
    challenge = secrets.token_bytes(32)
    named = [purpose, user.pk if user else None, urlsafe_base64_encode(challenge), int(now.timestamp())]
    return challenge, signing.dumps(named, salt=SALT)


def read(state: str, purpose: str, user: User | None, *, now: datetime) -> bytes:
    """Returns the challenge. Raises Refused if it has expired or was issued for another purpose or person."""
    try:
        named, owner, challenge, at = signing.loads(state, salt=SALT)
    except (signing.BadSignature, ValueError, TypeError) as error:
        raise Refused(reasons.of("challenge_expired")) from error
    if (named, owner) != (
        purpose,
        user.pk if user else None,
    ) or not 0 <= now.timestamp() - at <= CHALLENGE_LIFETIME.seconds:
        raise Refused(reasons.of("challenge_expired"))
    return urlsafe_base64_decode(challenge)


def spend(challenge: bytes, *, now: datetime) -> bool:
    """Counts the challenge as answered. Returns False if it was answered before."""
    digest = hashlib.sha256(challenge).hexdigest()
    _, is_new = SpentChallenge.objects.get_or_create(
        digest=digest, defaults={"expires_at": now + 2 * CHALLENGE_LIFETIME}
    )
    return is_new


def prune(*, now: datetime) -> None:
    """Deletes the challenges that have expired."""
    SpentChallenge.objects.filter(expires_at__lte=now).delete()
