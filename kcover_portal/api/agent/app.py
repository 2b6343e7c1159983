"""The ASGI application for /api/v1/agent/."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

import msgspec
from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.db.utils import DataError, Error as DatabaseError
from django.utils import timezone

from kcover import reasons, wire
from kcover_portal.api.agent import (
    body,
    credentials,
    enrolment,
    evidence,
    ingest_counters,
    jwt_claims,
    long_poll,
    peers,
    preflight,
    report_decoder,
    service_accounts,
)
from kcover_portal.api.agent.body_room import NoRoom
from kcover_portal.api.agent.group_commit import GroupCommit, QueueFull
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.api.agent.report_rates import ReportRates
from kcover_portal.api.agent.writer import Writer
from kcover_portal.fleet import services as fleet
from kcover_portal.incidents.services import silence
from kcover_portal.runtime.services import heartbeats

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[bytes, bytes]

PREFIX = "/api/v1/agent/"
METHODS = {
    "reports": "POST",
    "enrol": "POST",
    "commands": "GET",
    "preflight": "POST",
    "evidence": "POST",
    "peers": "GET",
}
MAX_WAIT_SECONDS = 60.0
RETRY_AFTER = 5
REPORT = reasons.of("report_wanted", keys="version, node, boot_id, batch_id, sent_at")

known_credentials = credentials.Credentials()
known_accounts = service_accounts.ServiceAccounts()
report_rates = ReportRates()
_writer = Writer()
# A new DaemonSet enrols thousands of nodes within a minute. Whoever waits longer than an agent does has asked again.
# Half of the places are for others than the holder of one token, who may have stolen it.
_enrolments: GroupCommit[enrolment.Asked, tuple[str, datetime]] = GroupCommit(
    enrolment.bind, name="enrolments", together=100, capacity=1_000, each=500
)
polls = long_poll.Polls()
uploads = evidence.Uploads()


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers one request; every refusal is a problem+json that says what to write instead."""
    asked = scope["path"].removeprefix(PREFIX).rstrip("/")
    try:
        status, answer = await _route(asked, scope, receive)
    except (Exception, asyncio.CancelledError) as error:
        refusal = error if isinstance(error, Refusal) else _trouble(error)
        await _send(send, refusal.status, refusal.document(asked), refusal.headers())
    else:
        await _send(send, status, answer, [])


async def stay_open() -> None:
    """Records periodically that agents can report, so that no agent counts as silent while the portal is down."""
    while True:
        try:
            await sync_to_async(beat, thread_sensitive=False)()
        except DatabaseError as error:
            log.warning("cannot record that the agent API is open: %s", error)
        await asyncio.sleep(silence.HEARTBEAT_INTERVAL.total_seconds())


def stop() -> None:
    """Ends the open polls of this process, because it stops."""
    polls.stop()


def beat() -> None:
    """Records once that this process accepts agents' reports, and the clusters whose tokens it cannot review."""
    close_old_connections()
    heartbeats.beat(silence.RECEIVER, gap=silence.HEARTBEAT_GAP, now=timezone.now())
    for cluster in known_accounts.blind():
        fleet.record_api_gap(cluster, now=timezone.now())
    ingest_counters.note()


async def _route(asked: str, scope: Scope, receive: Receive) -> tuple[int, dict[str, Any]]:
    if asked not in METHODS:
        known = reasons.of("agent_endpoint_unknown", path=scope["path"][:200], known=", ".join(METHODS), prefix=PREFIX)
        raise Refusal(404, known)
    if scope["method"] != METHODS[asked]:
        wanted = METHODS[asked]
        reason = reasons.of("method_not_allowed", endpoint=asked, method=wanted, used=scope["method"][:20])
        raise Refusal(405, reason, allow=wanted)
    headers: Headers = dict(scope["headers"])
    credential = await _credential(headers)
    if asked == "reports":
        return await _report(headers, receive, credential)
    if asked == "enrol":
        return await _enrol(headers, receive, credential)
    if asked == "preflight":
        return await _preflight(headers, receive, credential)
    if asked == "peers":
        _admitted(credential)
        return 200, await sync_to_async(peers.addresses, thread_sensitive=False)(credential)
    if asked == "evidence":
        return await _evidence(scope, headers, receive, credential)
    return await _commands(scope, credential)


async def _report(headers: Headers, receive: Receive, credential: credentials.Credential) -> tuple[int, dict[str, Any]]:
    sender = _admitted(credential)
    with _writer.room(credential.digest) as hold:
        sent = await body.read(headers, receive, wanted=REPORT, hold=hold)
        report_rates.admit_body(sender, sent)
        try:
            incoming = report_decoder.read(credential.cluster, sent, now=timezone.now())
        except wire.EnvelopeError as error:
            raise Refusal(400, error.reason, field=error.path or "body") from error
        credentials.speaks_for(credential, incoming.node)
        has_many = report_rates.charge(sender, incoming.faults)
        answer = await _writer.keep(incoming, alone=has_many)
    return 202, wire.encode_answer(answer)


def _admitted(credential: credentials.Credential) -> tuple[int, str]:
    """Returns the sender of a report. Raises Refusal before the body is read: 429, and 403 for an enrolment token."""
    credentials.speaks_for(credential, credential.node)
    sender = credential.cluster.pk, credential.node
    report_rates.admit(sender)
    return sender


async def _enrol(headers: Headers, receive: Receive, credential: credentials.Credential) -> tuple[int, dict[str, Any]]:
    sender = credential.cluster.pk, credential.node
    if credential.node:
        report_rates.admit(sender)
    with _writer.room(credential.digest) as hold:
        sent = await body.read(headers, receive, wanted=enrolment.WANTED, hold=hold)
        report_rates.admit_body(sender, sent)
        node, key = enrolment.request_of(sent)
    secret, expires_at = await _enrolments.ask((credential, node, key), sender=credential.digest)
    return 201, {"token": secret, "expires_at": expires_at.isoformat()}


async def _preflight(
    headers: Headers, receive: Receive, credential: credentials.Credential
) -> tuple[int, dict[str, Any]]:
    sender = _admitted(credential)
    with _writer.room(credential.digest) as hold:
        sent = await body.read(headers, receive, wanted=preflight.WANTED, hold=hold)
        report_rates.admit_body(sender, sent)
        return 202, await sync_to_async(preflight.take, thread_sensitive=False)(credential, sent)


async def _evidence(
    scope: Scope, headers: Headers, receive: Receive, credential: credentials.Credential
) -> tuple[int, dict[str, Any]]:
    credentials.speaks_for(credential, credential.node)
    uploads.rates.admit((credential.cluster.pk, credential.node))
    upload = evidence.read(scope["query_string"])
    with uploads.room(credential) as hold:
        sent = await body.read(headers, receive, wanted=evidence.WANTED, hold=hold)
        return 202, await uploads.keep(credential, upload, sent)


async def _commands(scope: Scope, credential: credentials.Credential) -> tuple[int, dict[str, Any]]:
    query = parse_qs(scope["query_string"].decode("ascii", "replace"), keep_blank_values=True)
    node = query.get("node", [credential.node])[0]
    credentials.speaks_for(credential, node)
    wait = _seconds(query.get("wait", ["0"])[0])
    commands = await polls.wait(credential.cluster.pk, node, seconds=wait)
    return 200, {"commands": [wire.encode_command(command) for command in commands]}


def _seconds(text: str) -> float:
    try:
        wait = float(text)
    except ValueError:
        wait = math.nan
    if not 0 <= wait <= MAX_WAIT_SECONDS:  # not a number is neither
        reason = reasons.of("out_of_range", least=0, most=int(MAX_WAIT_SECONDS), value=repr(text[:40]))
        raise Refusal(400, reason, field="wait")
    return wait


async def _credential(headers: Headers) -> credentials.Credential:
    secret = credentials.secret_of(headers.get(b"authorization", b"").decode("latin-1"))
    named = headers.get(b"x-kcover-cluster")
    cluster = named.decode("latin-1") if named is not None else None
    if jwt_claims.is_token(secret):
        return await known_accounts.find(secret, cluster)
    credential = await known_credentials.find(secret)
    credentials.is_in(credential, cluster)
    return credential


def _trouble(error: BaseException) -> Refusal:
    """Maps an error of the portal to the status that makes an agent handle its report correctly."""
    if isinstance(error, asyncio.CancelledError):  # the process stops, and has waited long enough for this request
        return Refusal(503, reasons.of("portal_stops"), retry_after=RETRY_AFTER)
    if isinstance(error, QueueFull):
        ingest_counters.refused()
        return Refusal(429, reasons.of("queue_full"), retry_after=RETRY_AFTER)
    if isinstance(error, NoRoom):
        return Refusal(429, reasons.of("evidence_busy"), retry_after=RETRY_AFTER)
    if isinstance(error, DataError):  # it would be refused again and again, and block what is spooled behind it
        log.error("a report contains a value that the database rejects: %s", error)
        return Refusal(400, reasons.of("value_not_storable", error=str(error).splitlines()[0]), field="body")
    if isinstance(error, DatabaseError):
        log.warning("the database does not accept reports: %s", error)
        return Refusal(503, reasons.of("database_unavailable"), retry_after=RETRY_AFTER)
    log.error("an agent request failed", exc_info=error)
    return Refusal(500, reasons.of("internal_error"), retry_after=RETRY_AFTER)


async def _send(send: Send, status: int, document: dict[str, Any], headers: list[tuple[bytes, bytes]]) -> None:
    payload = msgspec.json.encode(document)
    content_type = b"application/problem+json" if status >= 400 else b"application/json"
    sent = [(b"content-type", content_type), (b"content-length", str(len(payload)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": payload})
