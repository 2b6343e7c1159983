"""Calls to other systems, and words from them: signed with a shared secret, bounded in time and size.

The signature is that of the common webhooks: ``X-Kcover-Signature: sha256=HEX``, HMAC-SHA-256 over the body as sent.
An address is resolved once, and what was looked at is what is connected to: a name that answers otherwise a moment
later (DNS rebinding) leads nowhere else.
"""

import hashlib
import hmac
import ipaddress
import json
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import urllib3
import urllib3.exceptions
from django.conf import settings

SIGNATURE: Final = "X-Kcover-Signature"
MOST_BYTES: Final = 256 * 1024  # of an answer
# Where clouds serve a machine's own secrets beside the link-local addresses: Alibaba's, AWS's over IPv6, Azure's.
METADATA: Final = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "fd00:ec2::254", "168.63.129.16")))
TRIED: Final = 3  # addresses of one name
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})

_pool = urllib3.PoolManager(maxsize=8, retries=False)


class Silent(Exception):
    """No usable answer: not reached, too slow, not signed for, or not what was asked for. The message says which.

    ``arrived``: the other side may have got what was sent.
    """

    def __init__(self, message: str, *, arrived: bool = True) -> None:
        super().__init__(message)
        self.arrived = arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back, whatever it means."""

    status: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A status from 200 to 299 and the JSON that came with it (None: no body)."""

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
        raise Silent(f"{where} answers {reply.status}")
    if len(reply.data) > MOST_BYTES:
        raise Silent(f"{where} answers with more than {MOST_BYTES} bytes")
    try:
        return Answer(status=reply.status, body=json.loads(reply.data) if reply.data.strip() else None)
    except (ValueError, RecursionError) as error:
        raise Silent(f"{where} does not answer with JSON: {error}"[:300]) from error


def send(
    url: str,
    document: Any,
    *,
    secret: str,
    seconds: float,
    headers: Mapping[str, str] = NO_HEADERS,
    most: int = MOST_BYTES,
) -> Reply:
    """Sends a document once, follows no redirect, reads ``most`` bytes and one of the answer. Raises Silent."""
    parts = urlsplit(url)
    body = json.dumps(document, separators=(",", ":")).encode()
    own = {"Content-Type": "application/json", "User-Agent": "kcover-portal", "Host": parts.netloc}
    if secret:
        own[SIGNATURE] = signature(secret, body)
    until = time.monotonic() + seconds
    addresses = _addresses(url)
    for more, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
        left = max(until - time.monotonic(), 0.1)
        timeout = urllib3.Timeout(total=left, connect=left / (more + 1))
        try:
            return _send(parts, address, body, headers={**headers, **own}, timeout=timeout, most=most)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            silence = Silent(f"{parts.netloc} does not answer: {error}"[:300], arrived=_may_have_arrived(error))
            if silence.arrived or not more:
                raise silence from error
    raise Silent(f"{parts.hostname} has no address", arrived=False)


def _send(
    parts: SplitResult,
    address: str,
    body: bytes,
    *,
    headers: Mapping[str, str],
    timeout: urllib3.Timeout,
    most: int,
) -> Reply:
    host = parts.hostname
    pool = _pool.connection_from_host(
        address, parts.port, parts.scheme, pool_kwargs={"server_hostname": host, "assert_hostname": host}
    )
    response = pool.urlopen(
        "POST",
        (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        body=body,
        headers=headers,
        timeout=timeout,
        retries=False,
        redirect=False,
        preload_content=False,
    )
    try:
        data = response.read(most + 1, decode_content=True) if most else b""
    finally:
        response.close()
    return Reply(status=response.status, data=data)


def _may_have_arrived(error: Exception) -> bool:
    """False where the request was surely not sent: no connection, or one to somebody who is not who they should be."""
    never = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
    cause = error.args[0] if error.args else None
    return not isinstance(error, never) and not isinstance(cause, ssl.SSLCertVerificationError)


def _addresses(url: str) -> list[str]:
    """Where to connect, in the resolver's order. Raises Silent.

    Whoever may write an address must not reach what only this machine may: a cloud's metadata lives on link-local
    addresses. ``KCOVER_OUTGOING_HOSTS`` names what is called all the same.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not host:
        raise Silent(f"{url[:100]} is no address of HTTP", arrived=False)
    try:
        infos = socket.getaddrinfo(host, parts.port, type=socket.SOCK_STREAM)
        found = [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in infos]
    except (OSError, ValueError) as error:
        raise Silent(f"{host} has no address: {error}", arrived=False) from error
    allowed = {name.strip("[]").lower() for name in settings.KCOVER_OUTGOING_HOSTS}
    if host not in allowed and any(_forbidden(one) and str(one) not in allowed for one in found):
        raise Silent(f"{host} is an address that nothing is sent to", arrived=False)
    return list(dict.fromkeys(map(str, found)))[:TRIED]


def _forbidden(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped in METADATA or mapped.is_link_local or mapped.is_multicast or mapped.is_unspecified
