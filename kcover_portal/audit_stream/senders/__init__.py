"""Senders, one for each kind of sink. A sender returns when the receiver has every record, and raises DeliveryError
otherwise.
"""

import base64
import json
import os
from collections.abc import Sequence
from datetime import datetime

from django.conf import settings

from kcover import reasons
from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.queries.topics import Record
from kcover_portal.audit_stream.senders import bucket, cloud_events, jira, loki, mail, syslog
from kcover_portal.audit_stream.senders.delivery_error import DeliveryError as DeliveryError
from kcover_portal.config import private_files
from kcover_portal.lib import outgoing

SEND_TIMEOUT_SECONDS = 10.0  # for one batch
VERSION = 1  # of a webhook's body


def send(sink: Sink, records: Sequence[Record], *, now: datetime) -> None:
    """Sends a batch once. Raises DeliveryError; the receiver may then have any part of it."""
    match sink.kind:
        case Sink.Kind.FILE:
            _to_file(sink.address, records)
        case Sink.Kind.SYSLOG:
            syslog.send(
                sink.address,
                [(record.at, record.topic, text(record)) for record in records],
                seconds=SEND_TIMEOUT_SECONDS,
            )
        case Sink.Kind.JIRA:
            for record in records:
                jira.tell(sink, record, now=now)
        case Sink.Kind.MAIL:
            for record in records:
                mail.tell(sink, record)
        case _:
            _by_http(sink, records, now=now)


def finish(sink: Sink, *, now: datetime) -> None:
    """Does what is left of earlier records. Raises SecretUnreadable."""
    if sink.kind == Sink.Kind.JIRA:
        jira.close_due(sink, now=now)


def text(record: Record) -> str:
    """A record as one line of JSON."""
    return json.dumps(record.line(), separators=(",", ":"), ensure_ascii=False)


def _to_file(name: str, records: Sequence[Record]) -> None:
    """Appends the lines in one write and makes them durable."""
    folder = settings.KCOVER_AUDIT_FOLDER
    if folder is None:
        raise DeliveryError(reasons.of("sink_folder_unset"))
    path = folder / name
    try:
        private_files.make_folder(folder)
        private_files.append_line(path, "\n".join(map(text, records)))
    except OSError as error:
        why = error.strerror or os.strerror(error.errno or 0)
        raise DeliveryError(reasons.of("sink_not_written", path=str(path), error=why)) from error


def _by_http(sink: Sink, records: Sequence[Record], *, now: datetime) -> None:
    try:
        reply = _request(sink, records, now=now)
    except outgoing.NoResponse as error:
        raise DeliveryError(error.reason) from error
    if not 200 <= reply.status < 300:
        host = sink.shown_address
        raise DeliveryError(reasons.of("sink_refused", host=host, status=str(reply.status)), wait=reply.wait)


def _request(sink: Sink, records: Sequence[Record], *, now: datetime) -> outgoing.RawResponse:
    """Makes the one request of a batch. Raises outgoing.NoResponse."""
    address, secret, seconds = sink.address, sink.secret, SEND_TIMEOUT_SECONDS
    lines = [text(record) for record in records]
    match sink.kind:
        case Sink.Kind.CLOUDEVENTS:
            return cloud_events.send(address, records, secret=secret, seconds=seconds)
        case Sink.Kind.LOKI:
            return loki.send(address, records, lines, headers=_loki_headers(sink), seconds=seconds, now=now)
        case Sink.Kind.BUCKET:
            body = "".join(f"{line}\n" for line in lines).encode()
            region, at = sink.options.get("region", ""), records[0].at
            return bucket.send(address, body, key=secret, region=region, at=at, now=now, seconds=seconds)
    document = {
        "version": VERSION,
        "sink": sink.name,
        "portal": settings.KCOVER_PUBLIC_URL,
        "records": [record.line() for record in records],
    }
    return outgoing.send(address, document, secret=secret, seconds=seconds)


def _loki_headers(sink: Sink) -> dict[str, str]:
    """The tenant, and the token: for HTTP basic authentication if the sink names a user."""
    headers = {}
    if tenant := sink.options.get("tenant"):
        headers["X-Scope-OrgID"] = tenant
    if user := sink.options.get("user"):
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{sink.secret}".encode()).decode()
    elif sink.secret:
        headers["Authorization"] = f"Bearer {sink.secret}"
    return headers
