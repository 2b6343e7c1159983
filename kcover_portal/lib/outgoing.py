"""HTTP calls to other systems: signed with a shared secret, limited in time and size.

The time limit covers the whole call: name resolution, connection, headers and body. A socket time-out cannot do this,
because each received byte restarts it. The connection is therefore shut down when the time is over.

The signature is that of common webhooks: ``X-Kcover-Signature: sha256=HEX``, HMAC-SHA-256 over the body as sent.
A name is resolved once, and the addresses that were checked are the ones that are connected to. A later answer of the
resolver (DNS rebinding) has no effect.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

from kcover import reasons
from kcover.values import blocked_addresses

SIGNATURE: Final = "X-Kcover-Signature"
MAX_RESPONSE_BYTES: Final = 256 * 1024  # of a response
MAX_ERROR: Final = 200  # characters of an error's text in a reason
MAX_ADDRESSES: Final = 3  # addresses of one name
MAX_WAIT_SECONDS: Final = 86_400
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class NoResponse(reasons.ExplainedError):
    """There is no usable response: unreachable, too slow, a bad status or not JSON. The message says which.

    ``arrived``: the other side may have received the request.
    """

    def __init__(self, reason: reasons.Reason, *, arrived: bool = True) -> None:
        super().__init__(reason)
        self.arrived = arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class RawResponse:
    """The raw response."""

    status: int
    data: bytes
    wait: float = 0  # seconds to wait before the next request, from Retry-After


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedResponse:
    """A response with status 200 to 299 and its decoded JSON; None without a body."""

    status: int
    body: Any


def signature(secret: str, body: bytes) -> str:
    """Returns the value of the signature header for a body."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def signed(secret: str, body: bytes, header: str) -> bool:
    """Returns whether the header is this body's signature; False without a secret."""
    return bool(secret) and hmac.compare_digest(signature(secret, body).encode(), header.strip().encode())


def post(url: str, document: Any, *, secret: str, seconds: float) -> DecodedResponse:
    """Sends a document once, without redirects, and returns the JSON response in ``seconds``. Raises NoResponse."""
    reply, where = send(url, document, secret=secret, seconds=seconds), urlsplit(url).netloc
    if not 200 <= reply.status < 300:
        raise NoResponse(reasons.of("host_answered", host=where, status=str(reply.status)))
    if len(reply.data) > MAX_RESPONSE_BYTES:
        raise NoResponse(reasons.of("answer_too_large", host=where, bytes=MAX_RESPONSE_BYTES))
    try:
        return DecodedResponse(status=reply.status, body=json.loads(reply.data) if reply.data.strip() else None)
    except (ValueError, RecursionError) as error:
        raise NoResponse(reasons.of("answer_not_json", host=where, error=str(error)[:MAX_ERROR])) from error


def send(
    url: str,
    document: Any,
    *,
    secret: str,
    seconds: float,
    headers: Mapping[str, str] = NO_HEADERS,
    most: int = MAX_RESPONSE_BYTES,
    content_type: str = "application/json",
) -> RawResponse:
    """Sends a document once as JSON and returns the raw response; see ``request``. Signed if there is a ``secret``."""
    body = json.dumps(document, separators=(",", ":")).encode()
    own = {"Content-Type": content_type}
    if secret:
        own[SIGNATURE] = signature(secret, body)
    return request("POST", url, body=body, seconds=seconds, headers={**headers, **own}, most=most)


def request(
    method: str,
    url: str,
    *,
    seconds: float,
    body: bytes | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    most: int = MAX_RESPONSE_BYTES,
    verify: bool = True,
) -> RawResponse:
    """Makes a request once and returns the raw response within ``seconds``. Raises NoResponse.

    Follows no redirect. Reads at most ``most`` + 1 bytes, so that the caller can see that a response is too long.
    ``verify`` False accepts any certificate: only for addresses that an admin has marked so.
    """
    parts = _split(url)
    own = {"User-Agent": "kcover-portal", "Host": parts.netloc}
    until = time.monotonic() + seconds
    connected = _connect(parts, addresses(parts.hostname or "", parts.port, until=until), until=until)
    sent = threading.Event()
    try:
        with _cut_at(connected, until):
            reply = _exchange(
                connected, parts, method, body, headers={**headers, **own}, most=most, sent=sent, verify=verify
            )
    except (http.client.HTTPException, OSError, ValueError) as error:
        late = time.monotonic() >= until
        why = _too_slow(parts.netloc, seconds) if late else _not_answering(parts.netloc, error)
        raise NoResponse(why, arrived=sent.is_set()) from error
    finally:
        connected.close()
    if time.monotonic() >= until:  # a response that was cut off may look complete
        raise NoResponse(_too_slow(parts.netloc, seconds))
    return reply


@contextlib.contextmanager
def connection(host: str, port: int, *, tls: bool, seconds: float) -> Iterator[socket.socket]:
    """A TCP connection under the rules of ``request``, for other protocols. It is cut after ``seconds``.

    Raises NoResponse if there is no connection, OSError if the block uses it after that time.
    """
    until = time.monotonic() + seconds
    parts = SplitResult("", f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "", "", "")
    connected = _connect(parts, addresses(host, port, until=until), until=until)
    try:
        with _cut_at(connected, until):
            if tls:
                connected = ssl.create_default_context().wrap_socket(connected, server_hostname=host)
            yield connected
    finally:
        connected.close()


@contextlib.contextmanager
def _cut_at(connected: socket.socket, until: float) -> Iterator[None]:
    """Shuts the socket down at this time of the monotonic clock."""
    handle = connected.dup()
    cut = threading.Timer(max(until - time.monotonic(), 0), _cut, [handle])
    cut.daemon = True
    cut.start()
    try:
        yield
    finally:
        cut.cancel()
        cut.join()
        handle.close()


def _too_slow(host: str, seconds: float) -> reasons.Reason:
    return reasons.of("host_too_slow", host=host, seconds=f"{seconds:g}")


def _not_answering(host: str, error: Exception) -> reasons.Reason:
    return reasons.of("host_not_answering", host=host, error=str(error)[:MAX_ERROR])


def _connect(parts: SplitResult, addresses: list[str], *, until: float) -> socket.socket:
    """Connects to the first address that accepts; they share the remaining time. Raises NoResponse."""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    for remaining, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
        left = max(until - time.monotonic(), 0.1)
        try:
            connected = socket.create_connection((address, port), timeout=left / (remaining + 1))
        except OSError as error:
            if not remaining:
                raise NoResponse(_not_answering(parts.netloc, error), arrived=False) from error
            continue
        connected.settimeout(max(until - time.monotonic(), 0.1))
        return connected
    raise NoResponse(reasons.of("host_without_address", host=parts.hostname or ""), arrived=False)


def _exchange(
    connected: socket.socket,
    parts: SplitResult,
    method: str,
    body: bytes | None,
    *,
    headers: Mapping[str, str],
    most: int,
    sent: threading.Event,
    verify: bool,
) -> RawResponse:
    """Sends one request and reads the response. ``sent`` is set before the first byte of the request is sent."""
    if parts.scheme == "https":
        context = ssl.create_default_context()
        if not verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connected = context.wrap_socket(connected, server_hostname=parts.hostname)
    with contextlib.closing(http.client.HTTPConnection(parts.netloc)) as connection:
        connection.sock = connected
        sent.set()
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request(method, path, body=body, headers=dict(headers))
        with connection.getresponse() as response:
            data = response.read(most + 1) if most else b""
            if most and len(data) <= most and response.length:
                raise http.client.IncompleteRead(data, response.length)
            return RawResponse(status=response.status, data=data, wait=_wait(response.getheader("Retry-After", "")))


def _wait(header: str) -> float:
    """Returns the seconds of a Retry-After, which can also be a date (RFC 9110, 10.2.3); 0 if it is invalid."""
    value = header.strip()
    if value.isascii() and value.isdecimal():
        return float(min(int(value[:9]), MAX_WAIT_SECONDS))
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return 0
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max((zoned - datetime.now(UTC)).total_seconds(), 0), MAX_WAIT_SECONDS)


def _cut(connected: socket.socket) -> None:
    """Shut the socket down, which ends reads in any thread, also those under TLS."""
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _split(url: str) -> SplitResult:
    """Returns the parts of an http(s) URL with a host. Raises NoResponse for any other text."""
    with contextlib.suppress(ValueError):  # of brackets without an IPv6 address, and of a port that is not one
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    raise NoResponse(reasons.of("address_not_http", url=url[:100]), arrived=False)


def addresses(host: str, port: int | None, *, until: float | None = None) -> list[str]:
    """Returns the addresses of a host in the resolver's order, until a time of the monotonic clock. Raises NoResponse.

    People who configure addresses must not reach services that trust this machine, such as a cloud's metadata service.
    Loopback, link-local and metadata addresses are therefore blocked, except those in ``KCOVER_OUTGOING_HOSTS``.
    """
    try:
        infos = _look_up(host, port, until=time.monotonic() + 3.0 if until is None else until)
        found = [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in infos]
    except (OSError, ValueError) as error:
        raise _without_address(host, str(error)[:MAX_ERROR]) from error
    allowed = {blocked_addresses.canonical(name) for name in settings.KCOVER_OUTGOING_HOSTS}
    blocked = (address for address in found if blocked_addresses.is_blocked(address))
    if host not in allowed and any(str(address) not in allowed for address in blocked):
        raise NoResponse(reasons.of("address_blocked", host=host), arrived=False)
    return list(dict.fromkeys(map(str, found)))[:MAX_ADDRESSES]


def _without_address(host: str, error: str | reasons.Reason) -> NoResponse:
    return NoResponse(reasons.of("host_without_address_because", host=host, error=error), arrived=False)


def _look_up(host: str, port: int | None, *, until: float) -> Sequence[Any]:
    """Resolve a name within the time limit, which the resolver itself does not offer. Raises OSError, or NoResponse."""
    results: queue.SimpleQueue[Sequence[Any] | OSError] = queue.SimpleQueue()

    def resolve() -> None:
        try:
            results.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            results.put(OSError(str(error)))

    threading.Thread(target=resolve, name="look-up", daemon=True).start()
    try:
        answer = results.get(timeout=max(until - time.monotonic(), 0))
    except queue.Empty:
        raise _without_address(host, reasons.of("dns_not_answering")) from None
    if isinstance(answer, OSError):
        raise answer
    return answer
