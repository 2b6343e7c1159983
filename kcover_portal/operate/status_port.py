"""Autopilot's ``/status`` on a port of its own, and a path for each check, for scripts that send no token.

The process sends each request to the portal with the token that an admin gave it, so the portal's limits, permissions
and audit log hold. Whoever reaches the port may start checks. Browsers are refused, because a link on any page could
start them.
"""

import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Callable, Collection

import aiohttp
import yarl
from aiohttp import web

from kcover.checks import autopilot

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
SILENT_SECONDS = 60.0  # the portal sends an empty line after 30 s without output
MAX_REQUESTS = 8  # at the same time; the portal answers four
BROWSERS = ("Mozilla/", "Opera/")  # begin the user agents of browsers
SENT_ON = ("Content-Type", "Retry-After", "Cache-Control")
REFUSED = "Browsers are not accepted here. Use the page Checks of the portal, or curl.\n"
BUSY = f"{MAX_REQUESTS} requests are under way here. Retry in a moment.\n"
UNKNOWN = "This name is not known here. Use the address, or start the port with --name NAME.\n"
OWN_ENDS = (".svc", ".svc.cluster.local", ".localhost")  # names that no page on the Internet has
TWICE = "The path names the check. Leave out the parameter check.\n"
UNREACHABLE = "The portal does not answer. Retry in a moment.\n"


class StatusPort:
    """The application. ``token`` is called for each request, because the file behind it may be rotated.

    ``portal``: base URL of the portal. ``names``: further names of the port. Others are refused: a page whose name
    leads here a moment later (DNS rebinding) is of the same origin, so that a browser names no other.
    """

    def __init__(self, *, portal: str, token: Callable[[], str], names: Collection[str] = ()) -> None:
        self._names = frozenset(name.lower() for name in names)
        self._url, self._token = f"{portal.rstrip('/')}/api/v1/status", token
        self._under_way = 0

    def application(self) -> web.Application:
        """The routes ``/status``, ``/pciebw`` and so on for each check, and ``/healthz``."""
        made = web.Application()
        made.router.add_get("/status", self._status, allow_head=False)
        for check in autopilot.CHECKS:  # as of Autopilot's daemon on each node
            made.router.add_get(f"/{check}", self._status, allow_head=False)
        made.router.add_get("/healthz", self._healthz)
        made.cleanup_ctx.append(self._connections)
        return made

    async def _connections(self, app: web.Application) -> AsyncIterator[None]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as self._session:
            yield

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _status(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("User-Agent", "").startswith(BROWSERS) or "Origin" in request.headers:
            return web.Response(status=403, text=REFUSED)
        if not self._is_own(request):
            return web.Response(status=403, text=UNKNOWN)
        if _check(request) and "check" in request.query:
            return web.Response(status=400, text=TWICE)
        if self._under_way >= MAX_REQUESTS:
            return web.Response(status=429, text=BUSY, headers={"Retry-After": "5"})
        self._under_way += 1
        try:
            return await self._forward(request)
        finally:
            self._under_way -= 1

    def _is_own(self, request: web.Request) -> bool:
        """Returns whether the request names an address, this machine, a Service of the cluster, or a given name."""
        host = (request.url.host or "").lower().rstrip(".")
        if host in self._names or host.endswith(OWN_ENDS) or "." not in host:
            return True
        try:
            return bool(ipaddress.ip_address(host))
        except ValueError:
            return False

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        sent = web.StreamResponse()
        try:
            headers = {
                "Accept": request.headers.get("Accept", "text/plain"),
                "Authorization": f"Bearer {self._token()}",
                "X-Forwarded-For": request.remote or "",
                autopilot.ASKED_AT: f"{request.scheme}://{request.host}/status",
            }
            url = yarl.URL(f"{self._url}?{_query(request)}", encoded=True)
            async with self._session.get(url, headers=headers, allow_redirects=False) as answer:
                sent.set_status(answer.status)
                sent.headers.update({name: answer.headers[name] for name in SENT_ON if name in answer.headers})
                await sent.prepare(request)
                async for piece in answer.content.iter_any():
                    await sent.write(piece)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if sent.prepared:
                raise  # the answer is cut short, and the caller must notice
            log.warning("cannot ask the portal: %s: %s", type(error).__name__, error)
            return web.Response(status=502, text=UNREACHABLE, headers={"Retry-After": "5"})
        await sent.write_eof()
        return sent


def _check(request: web.Request) -> str:
    """The check that the path names; "" for ``/status``."""
    name = request.path.removeprefix("/")
    return name if name in autopilot.CHECKS else ""


def _query(request: web.Request) -> str:
    """The query as it was sent, with the check that the path names."""
    check, asked = _check(request), request.rel_url.raw_query_string
    return "&".join(part for part in (f"check={check}" if check else "", asked) if part)


def run(application: web.Application, listener: socket.socket) -> None:
    """Serves in the foreground until SIGTERM or Ctrl-C. Answers under way have ten seconds to end."""
    web.run_app(application, sock=listener, print=None, access_log=None, shutdown_timeout=10.0)
