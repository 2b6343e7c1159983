"""Forwards requests to the web server of the pages, so that one port serves everything (``make serve``).

In a Kubernetes cluster an Ingress does this. Here requests are sent whole (see ``bodies``) and responses are streamed
with some read-ahead. Hop-by-hop headers are dropped, and the client's address is appended to X-Forwarded-For.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from kcover_portal.accounts.services import proxies
from kcover_portal.asgi import bodies
from kcover_portal.config import deferred

if TYPE_CHECKING:
    import aiohttp
    import yarl
else:
    aiohttp, yarl = deferred.Module("aiohttp"), deferred.Module("yarl")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailers transfer-encoding upgrade".split()
)
FORWARDED_FOR, FORWARDED_PROTO = b"x-forwarded-for", b"x-forwarded-proto"
OURS = frozenset((b"date", b"server"))  # the front server sets its own
READ_AHEAD = 1024 * 1024  # bytes buffered for a slow client; a whole page fits, so its thread becomes free
IDLE_SECONDS = 15.0  # shorter than the upstream's keep-alive, so that a POST never meets a closing connection
POOL_SECONDS = 30.0  # to get a connection
SILENT_SECONDS = 300.0  # time-out for an upstream that sends nothing


class Proxy:
    """One upstream with a connection pool, created in the event loop at the first request."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Returns the upstream's response, or 502 if it does not respond."""
        url = self._upstream + scope["raw_path"].decode("ascii")
        if scope["query_string"]:
            url += "?" + scope["query_string"].decode("ascii")
        body = (await receive()).get("body", b"")
        hung_up = asyncio.create_task(bodies.hang_up(receive))
        started = False
        try:
            async with self._connections().request(
                scope["method"],
                yarl.URL(url, encoded=True),
                headers=_onward(scope),
                data=body or None,
                allow_redirects=False,
            ) as answer:
                headers = [(k.lower(), v) for k, v in answer.raw_headers if k.lower() not in HOP_BY_HOP | OURS]
                await send({"type": "http.response.start", "status": answer.status, "headers": headers})
                started = True
                async for chunk in answer.content.iter_any():
                    if hung_up.done():
                        return  # closes the connection, so the web server ends the answer too
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except (aiohttp.ClientError, TimeoutError):
            if started:
                raise  # the response is truncated, and the client must notice
            await _bad_gateway(scope, send)
        finally:
            hung_up.cancel()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _connections(self) -> "aiohttp.ClientSession":
        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False,
                connector=aiohttp.TCPConnector(keepalive_timeout=IDLE_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),  # cookies belong to the clients, never to the pool
                read_bufsize=READ_AHEAD,
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=POOL_SECONDS, sock_connect=5, sock_read=SILENT_SECONDS
                ),
            )
        return self._session


def _onward(scope: Scope) -> list[tuple[str, str]]:
    """Returns the request's headers without hop-by-hop headers, with the client appended to X-Forwarded-For.

    X-Forwarded-Proto is passed on from trusted proxies only.
    """
    trusted = not scope.get("client") or proxies.is_trusted(scope["client"][0])
    dropped = HOP_BY_HOP | {FORWARDED_FOR} | (set() if trusted else {FORWARDED_PROTO})
    headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in scope["headers"] if k not in dropped]
    hops = [value.decode("latin-1") for name, value in scope["headers"] if name == FORWARDED_FOR]
    if scope.get("client"):
        hops.append(scope["client"][0])
    if hops:
        headers.append((FORWARDED_FOR.decode(), ", ".join(hops)))
    return headers


async def _bad_gateway(scope: Scope, send: Send) -> None:
    text = "The portal's pages are unavailable; the agent API still works. Retry in a moment."
    kind, body = b"text/plain", text.encode()
    if scope["path"].startswith("/api/"):
        problem = {"type": "about:blank", "title": "Bad gateway", "status": 502, "code": "bad_gateway", "detail": text}
        kind, body = b"application/problem+json", json.dumps(problem).encode()
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), (b"retry-after", b"5")]
    await send({"type": "http.response.start", "status": 502, "headers": headers})
    await send({"type": "http.response.body", "body": body})
