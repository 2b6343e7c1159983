"""Calls to other systems, and words from them: signed with a shared secret, bounded in time and size.

The signature is that of the common webhooks: ``X-Kcover-Signature: sha256=HEX``, HMAC-SHA-256 over the body as sent.
"""

import hashlib
import hmac
import ipaddress
import json
import socket
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3
import urllib3.exceptions

SIGNATURE: Final = "X-Kcover-Signature"
MOST_BYTES: Final = 256 * 1024  # of an answer

_pool = urllib3.PoolManager(maxsize=8, retries=False)


class Silent(Exception):
    """No usable answer: not reached, too slow, not signed for, or not what was asked for. The message says which."""


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
    _refuse_metadata(url)
    body = json.dumps(document, separators=(",", ":")).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "kcover-portal"}
    if secret:
        headers[SIGNATURE] = signature(secret, body)
    try:
        response = _pool.request(
            "POST",
            url,
            body=body,
            headers=headers,
            timeout=urllib3.Timeout(total=seconds),
            redirect=False,
            preload_content=False,
        )
        try:
            data = response.read(MOST_BYTES + 1, decode_content=True)
        finally:
            response.close()
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise Silent(f"{urlsplit(url).netloc} does not answer: {error}"[:300]) from error
    if not 200 <= response.status < 300:
        raise Silent(f"{urlsplit(url).netloc} answers {response.status}")
    if len(data) > MOST_BYTES:
        raise Silent(f"{urlsplit(url).netloc} answers with more than {MOST_BYTES} bytes")
    try:
        return Answer(status=response.status, body=json.loads(data) if data.strip() else None)
    except (ValueError, RecursionError) as error:
        raise Silent(f"{urlsplit(url).netloc} does not answer with JSON: {error}"[:300]) from error


def _refuse_metadata(url: str) -> None:
    """Whoever may write an address must not reach what only this machine may: a cloud's metadata lives on link-local
    addresses. Raises Silent."""
    host = urlsplit(url).hostname or ""
    try:
        found = {ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, ValueError) as error:
        raise Silent(f"{host} has no address: {error}") from error
    if any(one.is_link_local or one.is_multicast or one.is_unspecified for one in found):
        raise Silent(f"{host} is an address that nothing is sent to")
