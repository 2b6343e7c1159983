"""Reads and decompresses request bodies within limits. A body that is too large is never held in memory."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from kcover import reasons, wire
from kcover_portal.api.agent.problem_responses import Refusal

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

MAX_BYTES = wire.MAX_BYTES
RECEIVE_TIMEOUT_SECONDS = 20.0  # for a whole body, so that a slow or stalled client frees its memory
_GZIP = ("gzip", "x-gzip")  # RFC 9110: x-gzip is an older name of gzip


async def read(
    headers: Mapping[bytes, bytes], receive: Receive, *, wanted: reasons.Reason, hold: Callable[[int], None]
) -> bytes:
    """Returns the decompressed body, which is not empty. ``wanted`` describes the expected content in errors.

    ``hold`` is called with the size of each received chunk, and in the end with the difference after decompression.
    Content-Length alone reserves nothing. Raises Refusal, or what ``hold`` raises.
    """
    declared = headers.get(b"content-length", b"").decode("latin-1")
    if declared.isdigit() and int(declared) > MAX_BYTES:
        raise _too_large(declared)
    try:
        async with asyncio.timeout(RECEIVE_TIMEOUT_SECONDS):
            received = await _received(receive, hold)
    except TimeoutError:
        raise Refusal(408, reasons.of("body_timeout", seconds=f"{RECEIVE_TIMEOUT_SECONDS:g}"), field="body") from None
    body = _unpacked(received, headers.get(b"content-encoding", b"").decode("latin-1").strip().lower())
    if body is not received:
        hold(len(body) - len(received))
    if not body.strip():
        raise Refusal(400, reasons.of("body_missing", wanted=wanted), field="body")
    return body


async def _received(receive: Receive, hold: Callable[[int], None]) -> bytes:
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, reasons.of("body_incomplete"))
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > MAX_BYTES:
            raise _too_large(reasons.of("more_than", number=MAX_BYTES))
        hold(len(chunks[-1]))
        if not message.get("more_body"):
            return b"".join(chunks)


def _unpacked(body: bytes, encoding: str) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding not in _GZIP:
        raise Refusal(415, reasons.of("unsupported_encoding", encoding=encoding[:60]), field="Content-Encoding")
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        unpacked = stream.decompress(body, MAX_BYTES + 1)
    except zlib.error as error:
        raise Refusal(400, reasons.of("not_gzip", error=str(error)), field="body") from error
    if len(unpacked) > MAX_BYTES:
        raise Refusal(413, reasons.of("unpacked_too_large", limit=MAX_BYTES), field="body")
    if not stream.eof:
        raise Refusal(400, reasons.of("gzip_truncated"), field="body")
    if stream.unused_data:
        raise Refusal(400, reasons.of("gzip_with_tail", bytes=len(stream.unused_data)), field="body")
    return unpacked


def _too_large(size: reasons.Value) -> Refusal:
    return Refusal(413, reasons.of("body_too_large", bytes=size, limit=MAX_BYTES), field="body")
