"""Calls to other systems, and words from them: signed with a shared secret, bounded in time and size.

The bound in time is on all of a call: the name, the connection, the answer's head and its body. No time-out of a socket
does that, for each byte that drips begins it anew; so at the end of the time the connection is cut.

The signature is that of the common webhooks: ``X-Kcover-Signature: sha256=HEX``, HMAC-SHA-256 over the body as sent.
An address is resolved once, and what was looked at is what is connected to: a name that answers otherwise a moment
later (DNS rebinding) leads nowhere else.
"""

import contextlib
import email.utils
import hashlib
import hmac
import http.client
import ipaddress
import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

SIGNATURE: Final = "X-Kcover-Signature"
MOST_BYTES: Final = 256 * 1024  # of an answer
# Where clouds serve a machine's own secrets beside the link-local addresses: Alibaba's, AWS's over IPv6, Azure's.
METADATA: Final = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "fd00:ec2::254", "168.63.129.16")))
TRIED: Final = 3  # addresses of one name
MOST_WAIT: Final = 86_400  # seconds
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Silent(Exception):
    """No usable answer: not reached, too slow, not signed for, or not what was asked for. The message says which.

    ``arrived``: the other side may have got what was sent.
    """

    def __init__(self, message: str, *, arrived: bool = True) -> None:
        super().__init__(message)
        self.arrived = arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The raw response."""

    status: int
    data: bytes
    wait: float = 0  # seconds that it asks for before it is asked again: Retry-After


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response with status 200 to 299 and its JSON (None: no body)."""

    status: int
    body: Any


def signature(secret: str, body: bytes) -> str:
    """The header's value for a body."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def signed(secret: str, body: bytes, header: str) -> bool:
    """Whether the header is this body's signature; without a secret nothing is."""
    return bool(secret) and hmac.compare_digest(signature(secret, body).encode(), header.strip().encode())


def post(url: str, document: Any, *, secret: str, seconds: float) -> Answer:
    """Sends a document once, follows no redirect, and waits ``seconds`` at most. Raises Silent."""
    reply, where = send(url, document, secret=secret, seconds=seconds), urlsplit(url).netloc
    if not 200 <= reply.status < 300:
        raise Silent(f"{where} answered {reply.status}")
    if len(reply.data) > MOST_BYTES:
        raise Silent(f"{where} answered with more than {MOST_BYTES} bytes")
    try:
        return Answer(status=reply.status, body=json.loads(reply.data) if reply.data.strip() else None)
    except (ValueError, RecursionError) as error:
        raise Silent(f"{where} did not answer with JSON: {error}"[:300]) from error


def send(
    url: str,
    document: Any,
    *,
    secret: str,
    seconds: float,
    headers: Mapping[str, str] = NO_HEADERS,
    most: int = MOST_BYTES,
) -> Reply:
    """Sends a document once, follows no redirect, reads ``most`` bytes and one of the answer; all of it within
    ``seconds``. Raises Silent."""
    parts = urlsplit(url)
    body = json.dumps(document, separators=(",", ":")).encode()
    own = {"Content-Type": "application/json", "User-Agent": "kcover-portal", "Host": parts.netloc}
    if secret:
        own[SIGNATURE] = signature(secret, body)
    until = time.monotonic() + seconds
    connected = _connect(parts, _addresses(url, until=until), until=until)
    handle = connected.dup()
    cut = threading.Timer(max(until - time.monotonic(), 0), _cut, [handle])
    cut.daemon = True
    cut.start()
    sent = threading.Event()
    try:
        reply = _exchange(connected, parts, body, headers={**headers, **own}, most=most, sent=sent)
    except (http.client.HTTPException, OSError, ValueError) as error:
        why = f"took longer than {seconds:g} s" if time.monotonic() >= until else f"does not answer: {error}"
        raise Silent(f"{parts.netloc} {why}"[:300], arrived=sent.is_set()) from error
    finally:
        cut.cancel()
        cut.join()
        handle.close()
        connected.close()
    if time.monotonic() >= until:  # cut at the end of what it had sent, it may look whole
        raise Silent(f"{parts.netloc} took longer than {seconds:g} s")
    return reply


def _connect(parts: SplitResult, addresses: list[str], *, until: float) -> socket.socket:
    """A connection to the first address that accepts one; the time is divided among them. Raises Silent."""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    for more, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
        left = max(until - time.monotonic(), 0.1)
        try:
            made = socket.create_connection((address, port), timeout=left / (more + 1))
        except OSError as error:
            if not more:
                raise Silent(f"{parts.netloc} does not answer: {error}"[:300], arrived=False) from error
            continue
        made.settimeout(max(until - time.monotonic(), 0.1))
        return made
    raise Silent(f"{parts.hostname} has no address", arrived=False)


def _exchange(
    connected: socket.socket,
    parts: SplitResult,
    body: bytes,
    *,
    headers: Mapping[str, str],
    most: int,
    sent: threading.Event,
) -> Reply:
    """One request and its answer. ``sent`` is set before the first byte of the request goes out."""
    if parts.scheme == "https":
        connected = ssl.create_default_context().wrap_socket(connected, server_hostname=parts.hostname)
    with contextlib.closing(http.client.HTTPConnection(parts.netloc)) as connection:
        connection.sock = connected
        sent.set()
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body=body, headers=dict(headers))
        with connection.getresponse() as response:
            data = response.read(most + 1) if most else b""
            if most and len(data) <= most and response.length:
                raise http.client.IncompleteRead(data, response.length)
            return Reply(status=response.status, data=data, wait=_wait(response.getheader("Retry-After", "")))


def _wait(header: str) -> float:
    """The seconds of a Retry-After, which may be a moment as well (RFC 9110, 10.2.3); 0 where it is neither."""
    said = header.strip()
    if said.isascii() and said.isdecimal():
        return float(min(int(said[:9]), MOST_WAIT))
    try:
        moment = email.utils.parsedate_to_datetime(said)
    except (ValueError, OverflowError):
        return 0
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max((zoned - datetime.now(UTC)).total_seconds(), 0), MOST_WAIT)


def _cut(connected: socket.socket) -> None:
    """Shut the socket down, which ends reads in any thread, below TLS as well."""
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _addresses(url: str, *, until: float) -> list[str]:
    """The addresses of a host in the resolver's order. Raises Silent.

    Whoever may write an address must not reach what only this machine may: a cloud's metadata lives on link-local
    addresses. ``KCOVER_OUTGOING_HOSTS`` names what is called all the same.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not host:
        raise Silent(f"{url[:100]} is not an HTTP address", arrived=False)
    try:
        infos = _look_up(host, parts.port, until=until)
        found = [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in infos]
    except (OSError, ValueError) as error:
        raise Silent(f"{host} has no address: {error}", arrived=False) from error
    allowed = {name.strip("[]").lower() for name in settings.KCOVER_OUTGOING_HOSTS}
    if host not in allowed and any(_forbidden(one) and str(one) not in allowed for one in found):
        raise Silent(f"{host} is a blocked address", arrived=False)
    return list(dict.fromkeys(map(str, found)))[:TRIED]


def _look_up(host: str, port: int | None, *, until: float) -> Sequence[Any]:
    """Resolve a name within the time limit, which the resolver itself does not offer. Raises OSError."""
    said: queue.SimpleQueue[Sequence[Any] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            said.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            said.put(OSError(str(error)))

    threading.Thread(target=ask, name="look-up", daemon=True).start()
    try:
        answer = said.get(timeout=max(until - time.monotonic(), 0))
    except queue.Empty:
        raise OSError("the DNS resolver does not answer") from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def _forbidden(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped in METADATA or mapped.is_link_local or mapped.is_multicast or mapped.is_unspecified
