"""What a service account's token says of itself.

Nothing in it is believed, as anybody can write one: it tells which are not worth asking about, and where others wait.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kcover_portal.api.agent.refusals import Refusal

AUDIENCE = "kcover-portal"
ACCOUNT = "system:serviceaccount:"  # what the names of service accounts begin with


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """``account``: "namespace/name". ``pod``: the uid of the pod that it is bound to, "" where it names none; nobody
    knows it who was not told."""

    account: str
    pod: str
    expires_at: datetime


def is_token(secret: str) -> bool:
    """Whether this has the shape of a service account's token (a JWT); the portal's own tokens have no dots."""
    return secret.startswith("eyJ") and secret.count(".") == 2


def read(secret: str, *, now: datetime) -> Claims:
    """What the token says. Raises Refusal (401) for one that is no good by its own words."""
    content = _content(secret)
    audiences = content.get("aud")
    if AUDIENCE not in (audiences if isinstance(audiences, list) else [audiences]):
        raise Refusal(401, f"the token is not for audience {AUDIENCE}: name it in the projected volume")
    return Claims(account=_account(content), pod=_pod(content), expires_at=_expiry(content, now=now))


def _account(content: Mapping[str, Any]) -> str:
    subject = content.get("sub")
    namespace, colon, name = str(subject).removeprefix(ACCOUNT).partition(":")
    if not str(subject).startswith(ACCOUNT) or not colon:
        raise Refusal(401, "the token is no service account's: use the one that is projected into the agent's pod")
    return f"{namespace}/{name}"


def _pod(content: Mapping[str, Any]) -> str:
    bound = content.get("kubernetes.io")
    pod = bound.get("pod") if isinstance(bound, dict) else None
    uid = pod.get("uid") if isinstance(pod, dict) else None
    return uid[:64] if isinstance(uid, str) else ""


def _expiry(content: Mapping[str, Any], *, now: datetime) -> datetime:
    ends = content.get("exp")
    if not isinstance(ends, int | float) or isinstance(ends, bool) or not 0 < ends < 2**37:
        raise Refusal(401, "the token has no end: use a projected one, which has")
    expires_at = datetime.fromtimestamp(ends, UTC)
    if expires_at <= now:
        raise Refusal(401, f"the token has expired, {expires_at:%Y-%m-%d %H:%M:%S} UTC: read its file again")
    return expires_at


def _content(secret: str) -> dict[str, Any]:
    payload = secret.split(".")[1]
    try:
        content = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise Refusal(401, "the token is neither one of the portal's nor a service account's")
    return content
