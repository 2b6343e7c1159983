"""Buffer a request's whole body first, so that a slow client occupies no thread or worker.

It also gives bodies sent in chunks the Content-Length without which WSGI applications, Django's too, read nothing.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

MOST = 4 * 1024 * 1024  # bytes; above what any page or REST call takes

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class Whole:
    """An ASGI application that hands ``application`` each request with its body complete; 413 beyond ``MOST`` bytes."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one HTTP request."""
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
        given = False

        async def replay() -> MutableMapping[str, Any]:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._application({**scope, "headers": _headers(scope, len(body))}, replay, send)


def _headers(scope: Scope, length: int) -> list[tuple[bytes, bytes]]:
    """The request's headers for a complete body of known length."""
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
