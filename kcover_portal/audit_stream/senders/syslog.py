"""Syslog: RFC 5424 messages by UDP (RFC 5426), or by TCP and TLS with octet counting (RFC 6587, RFC 5425).

Syslog has no acknowledgements. Over TCP a batch has a connection of its own: the portal ends its side, and counts the
batch as received when the receiver has read to the end and closes without an error. UDP loses messages by design.
"""

import socket
import ssl
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import SplitResult, urlsplit

from kcover import reasons
from kcover_portal.audit_stream.senders.delivery_error import DeliveryError
from kcover_portal.lib import outgoing

PRIORITY: Final = 13 * 8 + 6  # facility "log audit", severity informational
MAX_DATAGRAM: Final = 60_000  # bytes; longer messages are cut
TRANSPORTS: Final = ("udp", "tcp", "tls")
PORT: Final = {"udp": 514, "tcp": 601, "tls": 6514}

Line = tuple[datetime, str, str]  # time, topic, text


def address(text: str) -> SplitResult | None:
    """Reads ``tcp://HOST:PORT``; None if it is something else."""
    parts = urlsplit(text)
    try:
        valid = parts.scheme in TRANSPORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    extra = parts.path or parts.query or parts.fragment or parts.username
    return parts if valid and not extra else None


def message(at: datetime, topic: str, text: str) -> bytes:
    """One message; ``topic`` is its MSGID, and the JSON its text."""
    moment = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return f"<{PRIORITY}>1 {moment} {socket.gethostname()[:255] or '-'} kcover-portal - {topic} - ".encode() + (
        b"\xef\xbb\xbf" + text.encode()  # the BOM says that the text is UTF-8
    )


def send(to: str, lines: Sequence[Line], *, seconds: float) -> None:
    """Sends a batch. Raises DeliveryError."""
    parts = urlsplit(to)
    host, port = parts.hostname or "", parts.port or PORT[parts.scheme]
    messages = [message(*line) for line in lines]
    try:
        if parts.scheme == "udp":
            _by_datagrams(host, port, messages, seconds=seconds)
        else:
            _by_connection(host, port, messages, tls=parts.scheme == "tls", seconds=seconds)
    except outgoing.NoResponse as error:
        raise DeliveryError(error.reason) from error


def _by_datagrams(host: str, port: int, messages: Sequence[bytes], *, seconds: float) -> None:
    found = outgoing.addresses(host, port, until=time.monotonic() + seconds)[0]
    family = socket.AF_INET6 if ":" in found else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as plain:
            plain.settimeout(seconds)
            plain.connect((found, port))  # so that a closed port is reported
            for each in messages:
                plain.send(each[:MAX_DATAGRAM])
    except OSError as error:
        raise _reset(host, error) from error


def _by_connection(host: str, port: int, messages: Sequence[bytes], *, tls: bool, seconds: float) -> None:
    until = time.monotonic() + seconds
    try:
        with outgoing.connection(host, port, tls=tls, seconds=seconds) as connected:
            connected.sendall(b"".join(b"%d %s" % (len(each), each) for each in messages))
            _end(connected)
    except OSError as error:
        if time.monotonic() >= until:
            raise DeliveryError(reasons.of("syslog_not_closed", host=host, seconds=f"{seconds:g}")) from error
        raise _reset(host, error) from error
    if time.monotonic() >= until:  # a connection that was cut looks like one that the receiver closed
        raise DeliveryError(reasons.of("syslog_not_closed", host=host, seconds=f"{seconds:g}"))


def _end(connected: socket.socket) -> None:
    """Ends this side and waits until the receiver has closed. Raises OSError if it broke the connection."""
    if isinstance(connected, ssl.SSLSocket):
        try:
            connected = connected.unwrap()
        except ssl.SSLEOFError:
            return  # closed after it had read everything, without a farewell of its own
    connected.shutdown(socket.SHUT_WR)
    while connected.recv(4096):
        pass


def _reset(host: str, error: OSError) -> DeliveryError:
    return DeliveryError(reasons.of("syslog_connection_reset", host=host, error=str(error)[: outgoing.MAX_ERROR]))
