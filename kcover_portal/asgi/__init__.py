"""The ASGI application: the agents' endpoints and the WebSockets of pages.

``/ws/`` and ``/api/v1/agent/`` are served in this process. Other requests are forwarded to ``KCOVER_WEB_URL`` if it is
set (a larger installation). Otherwise the WSGI application serves them in threads of this process.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from kcover_portal.config import gc_tuning

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kcover_portal.settings")
_pages_wsgi = get_wsgi_application()  # must run before models are imported

from a2wsgi import WSGIMiddleware  # noqa: E402
from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator  # noqa: E402

from kcover_portal.api import agent  # noqa: E402
from kcover_portal.asgi import bodies, proxy  # noqa: E402
from kcover_portal.console import routing  # noqa: E402

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PAGE_THREADS = 16

_web = proxy.Proxy(settings.KCOVER_WEB_URL) if settings.KCOVER_WEB_URL else None
_sockets: Any = AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(routing.websocket_urlpatterns)))
pages = bodies.BodyBuffer(
    _web or cast("bodies.Application", WSGIMiddleware(cast("Any", _pages_wsgi), workers=PAGE_THREADS))
)


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
