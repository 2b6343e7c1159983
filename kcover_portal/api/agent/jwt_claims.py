"""Reads the unverified claims of a service account's token.

Anybody can write such claims, so they prove nothing. They only serve to reject tokens without a review, and to queue
the reviews of the others.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kcover import reasons
from kcover_portal.api.agent.problem_responses import Refusal

AUDIENCE = "kcover-portal"
ACCOUNT = "system:serviceaccount:"  # prefix of the names of service accounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims of a token. ``account`` is "namespace/name".

    ``pod`` is the uid of the pod that the token is bound to, "" if there is none. A uid cannot be guessed.
    """

    account: str
    pod: str
    expires_at: datetime


def is_token(secret: str) -> bool:
    """Returns whether the secret looks like a service account's token (a JWT). The portal's tokens have no dots."""
    return secret.startswith("eyJ") and secret.count(".") == 2


def read(secret: str, *, now: datetime) -> Claims:
    """Returns the token's claims. Raises Refusal (401) if they already rule the token out."""
    content = _content(secret)
    audiences = content.get("aud")
    if AUDIENCE not in (audiences if isinstance(audiences, list) else [audiences]):
        raise Refusal(401, reasons.of("token_audience", audience=AUDIENCE))
    return Claims(account=_account(content), pod=_pod(content), expires_at=_expiry(content, now=now))


def _account(content: Mapping[str, Any]) -> str:
    subject = content.get("sub")
    namespace, colon, name = str(subject).removeprefix(ACCOUNT).partition(":")
    if not str(subject).startswith(ACCOUNT) or not colon:
        raise Refusal(401, reasons.of("token_subject"))
    return f"{namespace}/{name}"


def _pod(content: Mapping[str, Any]) -> str:
    bound = content.get("kubernetes.io")
    pod = bound.get("pod") if isinstance(bound, dict) else None
    uid = pod.get("uid") if isinstance(pod, dict) else None
    return uid[:64] if isinstance(uid, str) else ""


def _expiry(content: Mapping[str, Any], *, now: datetime) -> datetime:
    ends = content.get("exp")
    if not isinstance(ends, int | float) or isinstance(ends, bool) or not 0 < ends < 2**37:
        raise Refusal(401, reasons.of("token_expiry"))
    expires_at = datetime.fromtimestamp(ends, UTC)
    if expires_at <= now:
        raise Refusal(401, reasons.of("token_expired", at=reasons.moment(expires_at)))
    return expires_at


def _content(secret: str) -> dict[str, Any]:
    payload = secret.split(".")[1]
    try:
        content = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise Refusal(401, reasons.of("jwt_invalid"))
    return content
