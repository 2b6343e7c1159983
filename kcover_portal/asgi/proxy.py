"""Hands requests on to the pages' own server, so that one port answers everything (``make serve``).

In a cluster the Ingress does this; here it is as plain as can be: stream in, stream out, hop-by-hop headers dropped.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp
import yarl

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailers transfer-encoding upgrade".split()
)


class Proxy:
    """One upstream, one pool of connections; made in the event loop at the first request."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one HTTP request with the upstream's answer, or 502 when it does not answer."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None, sock_connect=5)
            )
        url = self._upstream + scope["raw_path"].decode("ascii")
        if scope["query_string"]:
            url += "?" + scope["query_string"].decode("ascii")
        started = False
        try:
            async with self._session.request(
                scope["method"],
                yarl.URL(url, encoded=True),
                headers=_onward(scope),
                data=_chunks(receive) if _has_body(scope) else None,
                allow_redirects=False,
            ) as answer:
                headers = [(k.lower(), v) for k, v in answer.raw_headers if k.lower() not in HOP_BY_HOP]
                await send({"type": "http.response.start", "status": answer.status, "headers": headers})
                started = True
                async for chunk in answer.content.iter_any():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except (aiohttp.ClientError, TimeoutError):
            if started:
                raise
            body = b"The portal's pages do not answer just now; the agents' door is open."
            await send({"type": "http.response.start", "status": 502, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": body})

    async def close(self) -> None:
        """Closes the pool."""
        if self._session is not None:
            await self._session.close()


def _onward(scope: Scope) -> list[tuple[str, str]]:
    """The request's headers, with the client's address added and nothing that a client may not claim."""
    dropped = HOP_BY_HOP | {b"x-forwarded-for", b"content-length"}
    headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in scope["headers"] if k not in dropped]
    if scope.get("client"):
        headers.append(("x-forwarded-for", scope["client"][0]))
    return headers


def _has_body(scope: Scope) -> bool:
    return any(k == b"transfer-encoding" or (k == b"content-length" and v != b"0") for k, v in scope["headers"])


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise aiohttp.ClientConnectionError("the client hung up")
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return
