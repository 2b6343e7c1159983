"""Senders, one for each kind of sink. A sender returns when the receiver has every record, and raises DeliveryError
otherwise.
"""

import json
import os
from collections.abc import Sequence

from django.conf import settings

from kcover import reasons
from kcover_portal import outgoing, private_files
from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.queries.topics import Record
from kcover_portal.audit_stream.senders import syslog
from kcover_portal.audit_stream.senders.delivery_error import DeliveryError

SEND_TIMEOUT_SECONDS = 10.0  # for one batch
VERSION = 1  # of a webhook's body

__all__ = ["SEND_TIMEOUT_SECONDS", "DeliveryError", "send", "text"]


def send(sink: Sink, records: Sequence[Record]) -> None:
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
        case Sink.Kind.WEBHOOK:
            _to_webhook(sink, records)


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


def _to_webhook(sink: Sink, records: Sequence[Record]) -> None:
    body = {
        "version": VERSION,
        "sink": sink.name,
        "portal": settings.KCOVER_PUBLIC_URL,
        "records": [record.line() for record in records],
    }
    try:
        reply = outgoing.send(sink.address, body, secret=sink.secret, seconds=SEND_TIMEOUT_SECONDS)
    except outgoing.NoResponse as error:
        raise DeliveryError(error.reason) from error
    if not 200 <= reply.status < 300:
        host = sink.shown_address
        raise DeliveryError(reasons.of("sink_refused", host=host, status=str(reply.status)), wait=reply.wait)
