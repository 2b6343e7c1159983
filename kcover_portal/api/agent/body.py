"""Reads and decompresses request bodies within limits. A body that is too large is never held in memory."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from kcover import wire
from kcover_portal.api.agent.problem_responses import Refusal

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

LIMIT = wire.MAX_BYTES
PATIENCE = 20.0  # seconds to receive a body, so that a slow or stalled client frees its memory
_GZIP = ("gzip", "x-gzip")  # RFC 9110: x-gzip is an older name of gzip


async def read(headers: Mapping[bytes, bytes], receive: Receive, *, wanted: str, hold: Callable[[int], None]) -> bytes:
    """Returns the decompressed body, which is not empty. ``wanted`` describes the expected content in errors.

    ``hold`` is called with the size of each received chunk, and in the end with the difference after decompression.
    Content-Length alone reserves nothing. Raises Refusal, or what ``hold`` raises.
    """
    declared = headers.get(b"content-length", b"").decode("latin-1")
    if declared.isdigit() and int(declared) > LIMIT:
        raise _too_large(f"has {declared} bytes")
    try:
        async with asyncio.timeout(PATIENCE):
            received = await _received(receive, hold)
    except TimeoutError:
        raise Refusal(408, f"not received within {PATIENCE:g} s", field="body") from None
    body = _unpacked(received, headers.get(b"content-encoding", b"").decode("latin-1").strip().lower())
    if body is not received:
        hold(len(body) - len(received))
    if not body.strip():
        raise Refusal(400, f"is empty; send {wanted}", field="body")
    return body


async def _received(receive: Receive, hold: Callable[[int], None]) -> bytes:
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "the connection was closed before the body was complete")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > LIMIT:
            raise _too_large(f"has more than {LIMIT} bytes")
        hold(len(chunks[-1]))
        if not message.get("more_body"):
            return b"".join(chunks)


def _unpacked(body: bytes, encoding: str) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding not in _GZIP:
        raise Refusal(415, f"{encoding[:60]} is not supported; send gzip or omit the header", field="Content-Encoding")
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        unpacked = stream.decompress(body, LIMIT + 1)
    except zlib.error as error:
        raise Refusal(400, f"is not gzip, as Content-Encoding says: {error}", field="body") from error
    if len(unpacked) > LIMIT:
        raise _too_large(f"has more than {LIMIT} bytes once unpacked")
    if not stream.eof:
        raise Refusal(400, "the gzip data is truncated", field="body")
    if stream.unused_data:
        raise Refusal(400, f"{len(stream.unused_data)} bytes follow the gzip data; send one gzip member", field="body")
    return unpacked


def _too_large(fact: str) -> Refusal:
    return Refusal(413, f"{fact}; the limit is {LIMIT} (unpacked). Send fewer items at once", field="body")
