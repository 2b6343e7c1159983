"""The WSGI application of pages and REST in threads of this process."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

from a2wsgi import WSGIMiddleware

from kcover_portal.asgi.bodies import Message, Receive, Scope, Send, hang_up

WsgiApplication = Callable[[dict[str, Any], Any], Any]

HUNG_UP = "kcover.hung_up"  # in the scope: a function that tells whether the client is gone


class PageThreads:
    """ASGI application that answers in at most ``threads`` threads. It needs complete bodies, see ``bodies``."""

    def __init__(self, application: WsgiApplication, *, threads: int) -> None:
        self._threads: Any = WSGIMiddleware(cast("Any", _until_hung_up(application)), workers=threads)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises what the application or the connection raised."""
        body = await receive()
        hung_up = asyncio.create_task(hang_up(receive))
        failed: list[Exception] = []

        async def replay() -> Message:
            return body

        async def send_on(message: Message) -> None:
            """Drops what follows an error: the thread would wait for ever for somebody to take it."""
            if not failed:
                try:
                    await send(message)
                except Exception as error:
                    failed.append(error)

        try:
            await self._threads({**scope, HUNG_UP: lambda: failed or hung_up.done()}, replay, send_on)
        finally:
            hung_up.cancel()
        for error in failed:
            raise error


def _until_hung_up(application: WsgiApplication) -> WsgiApplication:
    """The application, except that a long answer ends when its client is gone. It would keep its thread otherwise."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        is_gone = environ["asgi.scope"][HUNG_UP]
        pieces = application(environ, start_response)
        try:
            for piece in pieces:
                if is_gone():
                    return
                yield piece
        finally:
            if hasattr(pieces, "close"):
                pieces.close()

    return answer
