"""HTTP requests to an API server, with time-outs and without retries. Every failure becomes a port error.

urllib3 is used directly. The official client's REST layer repeats a POST after a lost connection, writes response
bodies to the debug log, and may send an eviction without a Content-Type.
"""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import unquote, urlencode, urlsplit

import msgspec
import urllib3
import urllib3.exceptions

from kcover import reasons
from kcover_portal import tracing
from kcover_portal.kube import bounds, circuit_breaker, errors
from kcover_portal.kube.wire import base

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 20.0
FORWARDED_SECONDS: Final = 5.0  # for the first byte, and for each that follows
FORWARDED_SLACK: Final = 65_536  # bytes: a kubelet may send slightly more than it was asked for
POOL_SIZE: Final = 32
MAX_RETRY_SECONDS: Final = 600.0  # of a Retry-After
UNDECODABLE: Final = (msgspec.MsgspecError, RecursionError)  # what the decoder raises for bytes from outside
T = TypeVar("T")
# Detects a vanished peer (a moved load balancer) within a minute instead of at the read time-out.
KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class Rejected(Exception):
    """A response other than 2xx; the ``__cause__`` of the port error raised for it."""

    def __init__(self, status: base.Status, code: int) -> None:
        super().__init__(status.message)
        self.status = status
        self.code = code


def answer(error: errors.KubeError) -> base.Status:
    """Returns the API server's Status behind a port error; an empty one if the server did not respond."""
    return error.__cause__.status if isinstance(error.__cause__, Rejected) else base.Status()


@dataclass(frozen=True, slots=True, kw_only=True)
class WayIn:
    """The address of an API server and the credentials for it.

    ``authorization`` returns the current value of the header, because tokens expire. It may run a credential plug-in.
    """

    host: str
    authorization: Callable[[], str | None]
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    proxy: str | None = None
    resolve: bounds.Resolve | None = None  # which addresses may be called; None: all


class Connection:
    """A bounded pool of connections to one API server, safe for many threads.

    ``load`` returns the address and credentials. It is called at once, and again after a 401 or a TLS failure, because
    certificates and tokens are rotated while a process runs. ``bookmarks``: watches ask for bookmarks.
    ``slack_seconds``: see ``bounds.TOTAL_SLACK_SECONDS``. ``most_bytes``: of a response, unless a call says otherwise.
    ``clock``: of the circuit breaker.
    """

    def __init__(
        self,
        load: Callable[[], WayIn],
        *,
        connect_seconds: float = CONNECT_SECONDS,
        read_seconds: float = READ_SECONDS,
        quiet_seconds: float = circuit_breaker.OPEN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        slack_seconds: float | None = None,
        most_bytes: int = bounds.MAX_LIST_BYTES,
    ) -> None:
        self.bookmarks = True
        self._load = load
        self._lock = threading.Lock()
        self._connect_seconds = connect_seconds
        self._read_seconds = read_seconds
        self._breaker = circuit_breaker.CircuitBreaker(quiet_seconds, clock=clock)
        self._slack_seconds = slack_seconds
        self._most_bytes = most_bytes
        self._open()

    def request(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        harmless: bool = False,
        allowance: bounds.Allowance | None = None,
    ) -> T:
        """Returns the decoded object of a 2xx response. Raises a port error otherwise.

        ``harmless``: a POST that changes nothing (a review), so that its loss is not ambiguous. ``allowance``:
        what the responses of several calls may cost together.
        """
        what = f"{method} {path}"
        write = method != "GET" and not harmless
        with (
            tracing.call(method, path),
            self._breaker.call(what),
            self._exchange(method, path, query, body, content_type, write, self._read_seconds) as response,
        ):
            data = response.read(allowance or bounds.Allowance(left=self._most_bytes))
            if not 200 <= response.status < 300:
                self._reject(response.status, response.headers, data, what=what, write=write)
            try:
                return msgspec.json.decode(data, type=kind)
            except UNDECODABLE as error:
                why = reasons.of("api_response_unexpected", call=what, error=str(error))
                raise errors.Unavailable(why, ambiguous=write) from error

    def lines(self, path: str, *, query: Mapping[str, str], read_seconds: float) -> Iterator[bytes]:
        """Yields the lines of a long GET (a watch). Closing the iterator closes the connection."""
        with self._exchange("GET", path, query, None, "", False, read_seconds) as response:
            what = f"watch {path}"
            if response.status != 200:
                data = response.read(bounds.Allowance())
                self._reject(response.status, response.headers, data, what=what, write=False)
            yield from response.lines()

    def forwarded(self, path: str, *, query: Mapping[str, str], most: int) -> bytes:
        """Returns the body of a GET that the API server forwards to a kubelet, of about ``most`` bytes at most.

        A time-out may be the kubelet's, so the circuit breaker does not count it.
        """
        what, seconds = f"GET {path}", min(FORWARDED_SECONDS, self._read_seconds)
        with self._exchange("GET", path, query, None, "", False, seconds) as response:
            data = response.read(bounds.Allowance(left=most + FORWARDED_SLACK))
            if response.status != 200:
                self._reject(response.status, response.headers, data, what=what, write=False)
            return data

    def _open(self) -> None:
        way_in = self._load()
        options: list[tuple[int, int, int | bytes]] = [
            *urllib3.connection.HTTPConnection.default_socket_options,
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            *((socket.IPPROTO_TCP, getattr(socket, name), n) for name, n in KEEPALIVE if hasattr(socket, name)),
        ]
        more: dict[str, Any] = {"ssl_context": way_in.tls} if way_in.tls is not None else {}
        if way_in.server_name:
            more["server_hostname"] = way_in.server_name
        shared: dict[str, Any] = {"maxsize": POOL_SIZE, "block": True, "retries": False, **more}
        self._pool = (
            urllib3.ProxyManager(
                way_in.proxy, proxy_headers=_proxy_headers(way_in.proxy), socket_options=options, **shared
            )
            if way_in.proxy
            else urllib3.PoolManager(socket_options=options, **shared)
        )
        self._pool.pool_classes_by_scheme = bounds.pools(way_in.resolve, slack_seconds=self._slack_seconds)
        self._way_in = way_in
        self._stale = False

    def _ready(self) -> tuple[urllib3.PoolManager, str, str | None]:
        """Returns the pool, the host and the Authorization header; reloads stale credentials first."""
        with self._lock:
            try:
                if self._stale:
                    self._open()
                return self._pool, self._way_in.host, self._way_in.authorization()
            except errors.KubeError as error:
                raise errors.Unavailable(str(error)) from error

    @contextlib.contextmanager
    def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        content_type: str,
        write: bool,
        read_seconds: float,
    ) -> Iterator[bounds.Response]:
        """Sends one request. Failures, also those while the response is read, become ``Unavailable``."""
        pool, host, authorization = self._ready()
        what = f"{method} {path}"
        headers = {"Accept": "application/json", "User-Agent": "kcover-portal"}
        if authorization:
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = content_type
        response: bounds.Response | None = None
        try:
            raw = pool.request(
                method,
                f"{host}{path}?{urlencode(query)}" if query else f"{host}{path}",
                body=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout=urllib3.Timeout(connect=self._connect_seconds, read=read_seconds),
                pool_timeout=self._connect_seconds,
                preload_content=False,
                redirect=False,
            )
            response = bounds.Response(raw, what=what, write=write)
            yield response
        except (
            urllib3.exceptions.NewConnectionError,
            urllib3.exceptions.EmptyPoolError,
            urllib3.exceptions.ProxyError,
        ) as error:
            raise errors.Unavailable(_unconnected(what, error)) from error
        except urllib3.exceptions.ConnectTimeoutError as error:
            raise circuit_breaker.TimedOut(_unconnected(what, error)) from error
        except urllib3.exceptions.ReadTimeoutError as error:
            # A write may hang in an admission webhook; if a read hangs, the server itself does not answer.
            raise (errors.Unavailable if write else circuit_breaker.TimedOut)(
                f"{what}: {error}", ambiguous=write
            ) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            if response is not None and response.expired and not write:
                raise circuit_breaker.TimedOut(f"{what}: {error}") from error
            tls = isinstance(error, urllib3.exceptions.SSLError)
            # An invalid certificate is detected before anything is sent.
            unsent = tls and any(isinstance(arg, ssl.SSLCertVerificationError) for arg in error.args)
            self._stale = self._stale or tls
            raise errors.Unavailable(f"{what}: {error}", ambiguous=write and not unsent) from error
        except ValueError:
            # Of a header or a TLS name that cannot be sent. Its text would be the token, and is logged nowhere.
            raise errors.Unavailable(reasons.of("api_request_unsendable", call=what), ambiguous=write) from None
        finally:
            if response is not None:
                response.close()

    def _reject(self, code: int, headers: Mapping[str, str], body: bytes, *, what: str, write: bool) -> NoReturn:
        if code == 401:
            self._stale = True
        try:
            status = msgspec.json.decode(body, type=base.Status)
        except UNDECODABLE:
            # Proxies, load balancers and the server's flow control respond in plain text.
            status = base.Status(message=body[:500].decode(errors="replace").strip(), code=code)
        raise_rejected(status, code=code, wait=headers.get("Retry-After", ""), what=what, write=write)


def _unconnected(what: str, error: Exception) -> reasons.Reason:
    return reasons.of("api_server_unconnected", call=what, error=str(error))


def raise_rejected(status: base.Status, *, code: int, wait: str = "", what: str, write: bool) -> NoReturn:
    """Raises the port error for a response other than 2xx; ``wait`` is the Retry-After header, in seconds."""
    text = f"{what}: {code} {status.reason}: {status.message}".replace(" : ", ": ")
    seconds = float(wait[:9]) if wait.isascii() and wait.isdigit() else status.retry_after
    if seconds is not None:
        seconds = min(max(seconds, 0.0), MAX_RETRY_SECONDS)
    error: errors.KubeError
    if code == 404:
        error = errors.NotFound(text)
    elif code == 409:
        error = errors.Conflict(text)
    elif code == 410:
        error = errors.Expired(text)
    elif code in (401, 429):
        # 401 is sent before anything is done; the credentials are reloaded for the next call.
        error = errors.Unavailable(text, retry_after=seconds)
    elif code == 408 or code >= 500:
        error = errors.Unavailable(text, retry_after=seconds, ambiguous=write)
    else:
        error = errors.RefusedByServer(text)
    raise error from Rejected(status, code)


def _proxy_headers(proxy: str) -> dict[str, str]:
    """The credentials in the proxy's address, which urllib3 leaves out."""
    url = urlsplit(proxy)
    if url.username is None:
        return {}
    return urllib3.make_headers(proxy_basic_auth=f"{unquote(url.username)}:{unquote(url.password or '')}")
