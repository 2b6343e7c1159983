"""Which node a credential speaks for; remembered for a few seconds, so that a heartbeat costs no query."""

import threading
import time
from dataclasses import dataclass

from django.utils import timezone

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken

REMEMBERED = 5.0  # seconds; also how long a revoked token may still be heard
MOST = 200_000


@dataclass(frozen=True, slots=True)
class Denied(Exception):
    """Not let in: an HTTP status and why."""

    status: int
    reason: str


_known: dict[str, tuple[float, ApiToken]] = {}
_lock = threading.Lock()


def remembered(secret: str) -> ApiToken | None:
    """The token, if it was looked up a moment ago and has not run out since."""
    entry = _known.get(secret)
    if entry is None or entry[0] < time.monotonic():
        return None
    token = entry[1]
    return None if token.expires_at and token.expires_at <= timezone.now() else token


def look_up(secret: str) -> ApiToken:
    """The agent token behind a secret. Raises Denied."""
    token = accounts.find_token(secret, now=timezone.now()) if secret else None
    if token is None:
        raise Denied(401, "the token is missing, unknown, expired or revoked: make one with manage.py token create")
    if token.kind != ApiToken.Kind.AGENT:
        raise Denied(403, f"this is a token for kind {token.kind}: agents need one of kind agent")
    if token.cluster is None:
        raise Denied(403, "this agent token names no cluster")
    with _lock:
        if len(_known) >= MOST:
            _known.clear()
        _known[secret] = (time.monotonic() + REMEMBERED, token)
    return token


def speaks_for(token: ApiToken, node: str) -> None:
    """Raises Denied unless the token is bound to that node (invariant 47)."""
    if not token.node:
        raise Denied(403, "this token only enrols: POST /api/v1/agent/enrol gives one that is bound to the node")
    if token.node != node:
        raise Denied(403, f"this token speaks for node {token.node}, not for {node[:253]}")
