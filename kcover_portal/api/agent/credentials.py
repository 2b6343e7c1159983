"""Which node a credential speaks for; remembered for a few seconds, so that a heartbeat costs no query."""

import threading
import time

from django.db import close_old_connections
from django.utils import timezone

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.api.agent.refusals import Refusal

REMEMBERED = 5.0  # seconds; also how long a revoked token may still be heard
MOST = 200_000

_known: dict[str, tuple[float, ApiToken]] = {}
_lock = threading.Lock()


def secret_of(authorization: str) -> str:
    """The secret in an Authorization header's value. Raises Refusal (401)."""
    scheme, _, secret = authorization.strip().partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Refusal(401, "send the header Authorization: Bearer TOKEN", field="Authorization")
    return secret.strip()


def remembered(secret: str) -> ApiToken | None:
    """The token, if it was looked up a moment ago and has not run out since."""
    entry = _known.get(secret)
    if entry is None or entry[0] < time.monotonic():
        return None
    token = entry[1]
    return None if token.expires_at and token.expires_at <= timezone.now() else token


def look_up(secret: str) -> ApiToken:
    """The agent token behind a secret. Raises Refusal (401, 403)."""
    close_old_connections()
    token = accounts.find_token(secret, now=timezone.now())
    if token is None:
        raise Refusal(401, "the token is unknown, expired or revoked: make one with manage.py token create")
    if token.kind != ApiToken.Kind.AGENT:
        raise Refusal(403, f"this is a token of kind {token.kind}: agents need one of kind agent")
    if token.cluster is None:
        raise Refusal(403, "this agent token names no cluster: make one with token create --cluster NAME")
    with _lock:
        if len(_known) >= MOST:
            _known.clear()
        _known[secret] = (time.monotonic() + REMEMBERED, token)
    return token


def is_in(token: ApiToken, cluster: str | None) -> None:
    """Raises Refusal (403) where the header X-Kcover-Cluster names another cluster than the token's."""
    assert token.cluster is not None  # look_up saw to it
    if cluster is not None and cluster != token.cluster.name:
        raise Refusal(
            403,
            f"this token is of cluster {token.cluster.name}, not of {cluster[:100]!r}: leave the header out",
            field="X-Kcover-Cluster",
        )


def speaks_for(token: ApiToken, node: str) -> None:
    """Raises Refusal (403) unless the token is bound to that node (invariant 47)."""
    if not token.node:
        raise Refusal(403, "this token only enrols: POST /api/v1/agent/enrol gives one that is bound to the node")
    if token.node != node:
        raise Refusal(403, f"this token speaks for node {token.node}, not for {node[:253]!r}", field="node")
