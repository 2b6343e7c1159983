"""The ASGI application for /api/v1/agent/."""

import json
import logging
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.db.utils import Error as DatabaseError
from django.utils import timezone

from kcover import wire
from kcover.wire import fields
from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.api.agent import credentials, polling
from kcover_portal.api.agent.credentials import Denied
from kcover_portal.api.agent.writer import Full, Writer
from kcover_portal.incidents import services as incidents

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PREFIX = "/api/v1/agent/"
CREDENTIAL_LIVES = timedelta(days=365)
LONGEST_WAIT = 60.0
RETRY_AFTER = "5"

_writer = Writer()
_polls = polling.Polls()


class Bad(Exception):
    """A request that cannot be met: status, reason and, if known, the field."""

    def __init__(self, status: int, reason: str, *, field: str = "", retry: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.field, self.retry = status, reason, field, retry


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers one request; every refusal is a problem+json that says what to write instead."""
    try:
        status, body = await _route(scope, receive)
        await _answer(send, status, body)
    except Bad as bad:
        await _problem(send, bad)
    except Denied as denied:
        await _problem(send, Bad(denied.status, denied.reason))
    except Full:
        await _problem(send, Bad(429, "more reports wait than may: keep yours and come back", retry=True))
    except DatabaseError as error:
        log.warning("the database does not take reports: %s", error)
        await _problem(send, Bad(503, "the portal's database does not answer: keep the report, try later", retry=True))


async def _route(scope: Scope, receive: Receive) -> tuple[int, dict[str, Any]]:
    path, method = scope["path"].removeprefix(PREFIX).rstrip("/"), scope["method"]
    wanted = {"reports": "POST", "enrol": "POST", "commands": "GET"}.get(path)
    if wanted is None:
        raise Bad(404, f"there is no {scope['path']}: known are reports, enrol and commands")
    if method != wanted:
        raise Bad(405, f"{path} takes {wanted}, not {method}")
    token = await _token(scope)
    if path == "reports":
        return await _report(scope, receive, token)
    if path == "enrol":
        return await _enrol(scope, receive, token)
    return await _commands(scope, token)


async def _report(scope: Scope, receive: Receive, token: ApiToken) -> tuple[int, dict[str, Any]]:
    body = await _body(scope, receive)
    try:
        decoded = wire.decode(body)
    except wire.EnvelopeError as error:
        raise Bad(400, error.reason, field=error.path) from error
    credentials.speaks_for(token, decoded.report.node)
    assert token.cluster is not None  # look_up saw to it
    answer = await _writer.keep(incidents.Delivery(cluster=token.cluster, node=decoded.report.node, decoded=decoded))
    return 202, wire.encode_answer(answer)


async def _enrol(scope: Scope, receive: Receive, token: ApiToken) -> tuple[int, dict[str, Any]]:
    body = await _body(scope, receive)
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Bad(400, f"the body is not JSON: {error}") from error
    node = asked.get("node") if isinstance(asked, dict) else None
    if not isinstance(node, str) or len(node) > 253 or not fields.NODE.fullmatch(node):
        raise Bad(400, "node must be the node's name as the cluster knows it", field="node")
    if token.node:
        raise Denied(403, f"this token is bound to node {token.node} already: enrol with an enrolment token")
    secret, expires_at = await sync_to_async(_bind, thread_sensitive=False)(token, node)
    return 201, {"token": secret, "expires_at": expires_at.isoformat()}


def _bind(token: ApiToken, node: str) -> tuple[str, datetime]:
    """Makes the node's own credential; it runs out, and the agent enrols again."""
    close_old_connections()
    now = timezone.now()
    expires_at = now + CREDENTIAL_LIVES
    _, secret = accounts.make_token(
        ApiToken.Kind.AGENT,
        cluster=token.cluster,
        node=node,
        name=f"enrolled by {token.prefix}",
        expires_at=expires_at,
        created_by=f"token:{token.prefix}",
        now=now,
    )
    return secret, expires_at


async def _commands(scope: Scope, token: ApiToken) -> tuple[int, dict[str, Any]]:
    query = parse_qs(scope["query_string"].decode("ascii", "replace"))
    node = query.get("node", [token.node])[0]
    credentials.speaks_for(token, node)
    try:
        wait = float(query.get("wait", ["0"])[0])
    except ValueError as error:
        raise Bad(400, "wait is a number of seconds from 0 to 60", field="wait") from error
    if not 0 <= wait <= LONGEST_WAIT:
        raise Bad(400, "wait is a number of seconds from 0 to 60", field="wait")
    assert token.cluster_id is not None
    commands = await _polls.wait(token.cluster_id, node, seconds=wait)
    return 200, {"commands": [wire.encode_command(command) for command in commands]}


async def _token(scope: Scope) -> ApiToken:
    headers = dict(scope["headers"])
    scheme, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Denied(401, "send the header Authorization: Bearer TOKEN")
    known = credentials.remembered(secret.strip())
    return known or await sync_to_async(_look_up, thread_sensitive=False)(secret.strip())


def _look_up(secret: str) -> ApiToken:
    close_old_connections()
    return credentials.look_up(secret)


async def _body(scope: Scope, receive: Receive) -> bytes:
    """The whole body, unpacked; never more than the limit is held, packed or not."""
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Bad(400, "the connection was closed before the body was complete")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > wire.MAX_BYTES:
            raise Bad(413, f"a report has at most {wire.MAX_BYTES} bytes: split it")
        if not message.get("more_body"):
            break
    body = b"".join(chunks)
    encoding = dict(scope["headers"]).get(b"content-encoding", b"").decode("latin-1").lower()
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise Bad(415, f"content-encoding {encoding} is not understood: send gzip or none")
    return _unpack(body)


def _unpack(body: bytes) -> bytes:
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        unpacked = stream.decompress(body, wire.MAX_BYTES + 1)
    except zlib.error as error:
        raise Bad(400, f"the body is not gzip: {error}") from error
    if len(unpacked) > wire.MAX_BYTES:
        raise Bad(413, f"a report has at most {wire.MAX_BYTES} bytes unpacked: split it")
    if not stream.eof:
        raise Bad(400, "the gzip body is cut off")
    return unpacked


async def _answer(
    send: Send, status: int, body: dict[str, Any], headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    payload = json.dumps(body, separators=(",", ":")).encode()
    content_type = b"application/problem+json" if status >= 400 else b"application/json"
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", content_type),
                (b"content-length", str(len(payload)).encode()),
                *(headers or []),
            ],
        }
    )
    await send({"type": "http.response.body", "body": payload})


async def _problem(send: Send, bad: Bad) -> None:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": _TITLES[bad.status],
        "status": bad.status,
        "detail": f"{bad.field}: {bad.reason}" if bad.field else bad.reason,
    }
    if bad.field:
        body["errors"] = [{"field": bad.field, "reason": bad.reason}]
    headers = [(b"retry-after", RETRY_AFTER.encode())] if bad.retry else []
    if bad.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await _answer(send, bad.status, body, headers)


_TITLES = {
    400: "The report cannot be read",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Wrong method",
    413: "Too large",
    415: "Unknown encoding",
    429: "Too many reports",
    503: "Not available",
}
