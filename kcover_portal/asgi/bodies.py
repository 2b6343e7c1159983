"""Buffers a request's whole body first, so that a slow client does not occupy a thread or worker.

It also adds a Content-Length to chunked bodies. Without it WSGI applications such as Django's read an empty body.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

from kcover_portal.config import request_limits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class BodyRefused(Exception):
    """The body is not passed on. ``code`` and ``detail`` go into the problem document."""

    def __init__(self, status: HTTPStatus, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


class BodyBuffer:
    """ASGI middleware that passes requests on with their complete body.

    It answers 400 for a target that is not a path, 408 for a body that takes too long, 411 for a chunked one unless
    ``takes_chunks``, and 413 for one that is too large. If the bodies of all requests together exceed ``MAX_BUFFERED``,
    the largest one that is still being received gets 503. So a few slow clients with large bodies do not keep small
    requests out.
    """

    def __init__(self, application: Application, *, takes_chunks: bool = True) -> None:
        self._application = application
        self._takes_chunks = takes_chunks
        self._buffered = 0  # bytes of all requests that are being received or answered
        self._receiving: dict[asyncio.Timeout, int] = {}  # the bytes so far of each body that is being received

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces: list[bytes] = []
        begun = False

        async def answer(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            if await self._receive_in_time(scope, receive, pieces):
                await self._pass_on(scope, b"".join(pieces), receive, answer)
        except BodyRefused as refused:
            await _refuse(send, refused)
        except asyncio.CancelledError:  # the process stops, and has waited long enough for this request
            if not begun:
                await _refuse(send, _stops())
        finally:
            self._buffered -= sum(map(len, pieces))

    async def _receive_in_time(self, scope: Scope, receive: Receive, pieces: list[bytes]) -> bool:
        limit = asyncio.timeout(request_limits.REQUEST_SECONDS)
        self._receiving[limit] = 0
        try:
            async with limit:
                return await self._receive(scope, receive, pieces, limit)
        except TimeoutError as error:
            if limit not in self._receiving:
                raise _too_many() from error
            detail = f"The body did not arrive within {request_limits.REQUEST_SECONDS:g} s."
            raise BodyRefused(HTTPStatus.REQUEST_TIMEOUT, "body_timeout", detail) from error
        finally:
            self._receiving.pop(limit, None)

    async def _receive(self, scope: Scope, receive: Receive, pieces: list[bytes], limit: asyncio.Timeout) -> bool:
        """Appends the body's pieces. Returns False if the client disconnected. Raises BodyRefused."""
        if not scope["path"].startswith("/"):
            raise BodyRefused(HTTPStatus.BAD_REQUEST, "target_invalid", "The request target must be a path.")
        if not scope["query_string"].isascii():
            detail = "The query of the request target must be percent-encoded."
            raise BodyRefused(HTTPStatus.BAD_REQUEST, "target_invalid", detail)
        most, headers = request_limits.max_body(scope["headers"]), dict(scope["headers"])
        if b"transfer-encoding" in headers and not self._takes_chunks:
            detail = "The request must have a Content-Length."
            raise BodyRefused(HTTPStatus.LENGTH_REQUIRED, "length_required", detail)
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > most:
            raise _too_large(most)
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            piece = message.get("body", b"")
            pieces.append(piece)
            size += len(piece)
            self._buffered += len(piece)
            if size > most:
                raise _too_large(most)
            self._receiving[limit] = size
            if size and self._buffered > request_limits.MAX_BUFFERED:
                self._make_room(limit)
            more = message.get("more_body", False)
        return True

    def _make_room(self, limit: asyncio.Timeout) -> None:
        """Ends the largest request that is being received. Raises BodyRefused if it is this one."""
        largest = max(self._receiving, key=self._receiving.__getitem__)
        if largest is limit:
            raise _too_many()
        del self._receiving[largest]
        largest.reschedule(asyncio.get_running_loop().time())

    async def _pass_on(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        replayed = False

        async def replay() -> MutableMapping[str, Any]:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._application({**scope, "headers": _headers(scope, len(body))}, replay, send)


def _headers(scope: Scope, length: int) -> list[tuple[bytes, bytes]]:
    """Returns the request's headers, with the Content-Length of the complete body."""
    framing = (b"transfer-encoding", b"content-length", b"expect")
    framed = any(name in framing for name, _ in scope["headers"])
    kept = [(name, value) for name, value in scope["headers"] if name not in framing]
    return [*kept, (b"content-length", str(length).encode())] if framed else kept


def _too_many() -> BodyRefused:
    detail = "The portal is receiving too many large requests. Retry in a moment."
    return BodyRefused(HTTPStatus.SERVICE_UNAVAILABLE, "too_many_bodies", detail)


def _stops() -> BodyRefused:
    return BodyRefused(HTTPStatus.SERVICE_UNAVAILABLE, "portal_stops", "This process of the portal stops. Retry.")


def _too_large(most: int) -> BodyRefused:
    detail = f"The request body exceeds the limit of {most} bytes."
    return BodyRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", detail)


async def _refuse(send: Send, refused: BodyRefused) -> None:
    problem = {
        "type": "about:blank",
        "title": refused.status.phrase,
        "status": refused.status.value,
        "code": refused.code,
        "detail": refused.detail,
    }
    body = json.dumps(problem).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if refused.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append((b"retry-after", b"5"))
    await send({"type": "http.response.start", "status": refused.status.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def hang_up(receive: Receive) -> None:
    """Returns when the client has closed the connection. The body must have been received."""
    while (await receive())["type"] != "http.disconnect":
        pass
