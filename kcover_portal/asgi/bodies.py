"""Buffers a request's whole body first, so that a slow client does not occupy a thread or worker.

It also adds a Content-Length to chunked bodies. Without it WSGI applications such as Django's read an empty body.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

MOST = 4 * 1024 * 1024  # bytes; more than any page or REST call needs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class Whole:
    """ASGI middleware that passes requests on with their complete body; answers 413 beyond ``MOST`` bytes."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        declared = dict(scope["headers"]).get(b"content-length", b"")
        body = None if declared.isdigit() and int(declared) > MOST else b""
        more = body is not None
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            assert body is not None
            body += message.get("body", b"")
            if len(body) > MOST:
                body = None
                break
            more = message.get("more_body", False)
        if body is None:
            await _too_large(send)
            return
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


async def _too_large(send: Send) -> None:
    problem = {
        "type": "about:blank",
        "title": "Content too large",
        "status": 413,
        "code": "too_large",
        "detail": f"The request body exceeds the limit of {MOST} bytes.",
    }
    body = json.dumps(problem).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
