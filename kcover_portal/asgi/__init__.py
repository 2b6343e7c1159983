"""The ASGI application: the agents' endpoints and the WebSockets of pages.

``/ws/`` and ``/api/v1/agent/`` are served in this process. Other requests are forwarded to ``KCOVER_WEB_URL`` if it is
set (a larger installation). Otherwise the WSGI application serves them in threads of this process, as ``web`` does.
"""

import asyncio
import multiprocessing
import os
import resource
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from uvicorn.config import STARTUP_FAILURE

from kcover_portal.config import gc_tuning

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kcover_portal.settings")
try:
    _pages_wsgi = get_wsgi_application()  # must run before models are imported
except SystemExit as error:  # the settings are invalid; the message is already printed
    # With any other status, the main process of several would start this one again and again.
    raise SystemExit(STARTUP_FAILURE if multiprocessing.parent_process() else error.code) from error

from channels.auth import AuthMiddlewareStack
from channels.routing import URLRouter
from channels.security.websocket import AllowedHostsOriginValidator

from kcover_portal.api import agent
from kcover_portal.asgi import bodies, page_threads, proxy
from kcover_portal.console import routing

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PAGE_THREADS = 16

# A connection is an open file, and many systems let a process have 1,024 unless it asks for more.
_, _most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
with suppress(ValueError, OSError):  # macOS refuses a limit without end
    resource.setrlimit(resource.RLIMIT_NOFILE, (_most_files, _most_files))


def pages_in_threads(threads: int, *, takes_chunks: bool = True) -> bodies.BodyBuffer:
    """Pages and REST, answered by so many threads of this process."""
    return bodies.BodyBuffer(page_threads.PageThreads(_pages_wsgi, threads=threads), takes_chunks=takes_chunks)


_web = proxy.Proxy(settings.KCOVER_WEB_URL) if settings.KCOVER_WEB_URL else None
_sockets: Any = AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(routing.websocket_urlpatterns)))
pages = bodies.BodyBuffer(_web) if _web is not None else pages_in_threads(PAGE_THREADS)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Routes a connection by its type and path."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["type"] == "websocket":
        await _sockets(scope, receive, send)
    elif scope["path"].startswith("/api/v1/agent/"):
        await agent.application(scope, receive, send)
    else:
        await pages(scope, receive, send)


async def _lifespan(receive: Receive, send: Send) -> None:
    agent_task: asyncio.Task[None] | None = None
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            gc_tuning.freeze_after_startup()
            agent_task = asyncio.create_task(agent.stay_open())
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            if agent_task is not None:
                agent_task.cancel()
            if _web is not None:
                await _web.close()
            await send({"type": "lifespan.shutdown.complete"})
            return
