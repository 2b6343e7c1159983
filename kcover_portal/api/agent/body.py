"""The body of a request: read in bounds, unpacked in bounds. What is too large is never held, packed or not."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from kcover import wire
from kcover_portal.api.agent.problem_responses import Refusal

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

LIMIT = wire.MAX_BYTES
PATIENCE = 20.0  # seconds in which a body is to be here: who sends slower, or stops, holds no room for ever
_GZIP = ("gzip", "x-gzip")  # RFC 9110: the second is an older name of the first


async def read(headers: Mapping[bytes, bytes], receive: Receive, *, wanted: str, hold: Callable[[int], None]) -> bytes:
    """The whole body, unpacked and not empty; ``wanted`` says what should be in it.

    ``hold`` is told the size of each piece once it is here, and in the end by how much unpacking changed it: what a
    header announces holds no room. Raises Refusal, or what ``hold`` raises.
    """
    announced = headers.get(b"content-length", b"").decode("latin-1")
    if announced.isdigit() and int(announced) > LIMIT:
        raise _too_large(f"has {announced} bytes")
    try:
        async with asyncio.timeout(PATIENCE):
            packed = await _received(receive, hold)
    except TimeoutError:
        raise Refusal(408, f"not received within {PATIENCE:g} s", field="body") from None
    body = _unpacked(packed, headers.get(b"content-encoding", b"").decode("latin-1").strip().lower())
    if body is not packed:
        hold(len(body) - len(packed))
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
