"""Requests to the systems that the portal reads."""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from kcover import reasons
from kcover_portal.lib import outgoing
from kcover_portal.sources.models import Source

SECONDS: Final = 10.0
MAX_BYTES: Final = 8 * 1024 * 1024
MAX_ERROR: Final = 200  # characters


class NotRead(reasons.ExplainedError):
    """A source gave no usable answer. ``wait``: seconds that it asks for before the next request."""

    def __init__(self, reason: reasons.Reason, *, wait: float = 0) -> None:
        super().__init__(reason)
        self.wait = wait


class TooLarge(NotRead):
    """The answer has more than MAX_BYTES."""


def headers_of(source: Source) -> dict[str, str]:
    """The credentials of a source. Raises SecretUnreadable."""
    headers = {"Accept": "application/json"}
    if source.token:
        headers["Authorization"] = f"Bearer {source.token}"
    if tenant := source.settings.get("tenant"):
        headers["X-Scope-OrgID"] = tenant
    return headers


def ask(
    base: str,
    path: str,
    query: Mapping[str, str],
    *,
    headers: Mapping[str, str],
    seconds: float = SECONDS,
    verify: bool = True,
) -> Any:
    """The decoded JSON of ``GET base/path?query``. Raises NotRead."""
    url = f"{base.partition('?')[0].rstrip('/')}{path}" + (f"?{urlencode(query)}" if query else "")
    try:
        reply = outgoing.request("GET", url, seconds=seconds, headers=headers, most=MAX_BYTES, verify=verify)
    except outgoing.NoResponse as silent:
        raise NotRead(silent.reason) from silent
    where = urlsplit(base).netloc
    if len(reply.data) > MAX_BYTES:
        raise TooLarge(reasons.of("source_answer_large", host=where, bytes=MAX_BYTES))
    if not 200 <= reply.status < 300:
        # Without its body: an address may lead to a service that the admin cannot reach.
        raise NotRead(reasons.of("host_answered", host=where, status=str(reply.status)), wait=reply.wait)
    try:
        return json.loads(reply.data)
    except (ValueError, RecursionError) as error:
        problem = str(error)[:MAX_ERROR]
        raise NotRead(reasons.of("source_answer_not_json", host=where, problem=problem)) from error
