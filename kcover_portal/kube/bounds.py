"""Bounds on the responses of an API server: their total time, their size and the length of a line.

A server that lies, or a proxy in its place, must not fill the memory or keep the threads of a worker that also serves
other clusters. A socket's time-out does not bound a response, because each byte restarts it.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

import urllib3
import urllib3.connection
import urllib3.connectionpool
import urllib3.exceptions

from kcover import reasons
from kcover_portal.kube import errors

# Returns the addresses of a host that may be called. Raises ExplainedError if it has none.
Resolve: TypeAlias = Callable[[str, int | None], Sequence[str]]

TOTAL_SLACK_SECONDS: Final = 40.0  # added to the socket's time limit: the limit of a whole response
MAX_BYTES: Final = 64 * 1024 * 1024  # of one response; a page of 500 nodes has 15 MiB
MAX_LIST_BYTES: Final = 512 * 1024 * 1024  # of all pages of a list; 15,000 nodes have 450 MiB
MAX_POD_LIST_BYTES: Final = 4 * 1024 * 1024 * 1024  # 400,000 pods; only decoded fields are kept
MAX_CUSTOM_BYTES: Final = 128 * 1024 * 1024  # of a list of custom objects
MAX_BYTES_BY_USERS: Final = 32 * 1024 * 1024  # of a list of objects that users may create
LIST_SECONDS: Final = 300.0  # from the first page to the last, of all tries
SECONDS_BY_USERS: Final = 30.0  # of a list of objects that users may create
MAX_LINE: Final = 16 * 1024 * 1024  # of a watch; etcd stores no object above 1.5 MiB
CHUNK_BYTES: Final = 256 * 1024


class TooLarge(errors.Unavailable):
    """A response has more bytes than it may have."""


@dataclass(slots=True)
class Allowance:
    """What the responses of one list may cost together. ``left``: bytes. ``until``: on the monotonic clock."""

    left: int = MAX_LIST_BYTES
    until: float = field(default_factory=lambda: time.monotonic() + LIST_SECONDS)


class SocketDeadline:
    """Shuts a socket down after some seconds. ``expired``: it was shut down."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self.expired = False
        self._sock = sock
        self._timer = threading.Timer(seconds, self._shut_down)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """Leaves the socket alone from now on."""
        self._timer.cancel()

    def check(self, error: BaseException | None = None) -> None:
        """Raises TimeoutError if the socket was shut down: what arrived by then may look complete."""
        if self.expired:
            raise TimeoutError("the response took too long") from error

    def _shut_down(self) -> None:
        self.expired = True
        with contextlib.suppress(OSError):
            # Not the method of SSLSocket, which would drop the TLS state under the thread that reads.
            # Through an https:// proxy it is a wrapper of urllib3 around the socket.
            socket.socket.shutdown(getattr(self._sock, "socket", self._sock), socket.SHUT_RDWR)


class _Connection(urllib3.connection.HTTPConnection):
    """Bounds the time from the end of a request to the end of the response; the caller ends ``deadline``."""

    deadline: SocketDeadline | None = None
    slack_seconds: ClassVar[float | None] = None  # None: TOTAL_SLACK_SECONDS

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as in urllib3
        if self.deadline is not None:
            self.deadline.cancel()  # of the response before, which was read completely
        slack = TOTAL_SLACK_SECONDS if self.slack_seconds is None else self.slack_seconds
        self.deadline = SocketDeadline(self.sock, (self.timeout or 0) + slack)
        try:
            response = super().getresponse()
        except BaseException as error:
            self.deadline.cancel()
            self.deadline.check(error)
            raise
        if self.deadline.expired:
            response.close()
        self.deadline.check()
        return response


class _TlsConnection(_Connection, urllib3.connection.HTTPSConnection):
    pass


class _Pool(urllib3.connectionpool.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.connectionpool.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


POOLS: Final[dict[str, Any]] = {"http": _Pool, "https": _TlsPool}


def pools(resolve: Resolve | None, *, slack_seconds: float | None = None) -> dict[str, Any]:
    """Returns the classes of pools that connect only to the addresses that ``resolve`` returns; None: to any.

    Connects only to the addresses that were checked, so a later answer of the resolver (DNS rebinding) has no effect.
    """
    if resolve is None and slack_seconds is None:
        return POOLS

    class Checked(_Connection):
        def _new_conn(self) -> socket.socket:
            return _connected(self, super()._new_conn, resolve) if resolve is not None else super()._new_conn()

    class CheckedTls(Checked, _TlsConnection):
        pass

    class Plain(_Pool):
        ConnectionCls = Checked

    class Tls(_TlsPool):
        ConnectionCls = CheckedTls

    Checked.slack_seconds = slack_seconds
    return {"http": Plain, "https": Tls}


def _connected(connection: Any, connect: Callable[[], socket.socket], resolve: Resolve) -> socket.socket:
    """Connects to the first address of the connection's host that accepts. Raises errors of urllib3."""
    host = connection._dns_host
    try:
        found = resolve(host, connection.port)
    except reasons.ExplainedError as error:
        raise urllib3.exceptions.NewConnectionError(connection, str(error)) from error
    try:
        for address in found[:-1]:
            connection._dns_host = address
            with contextlib.suppress(urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError):
                return connect()
        connection._dns_host = found[-1]
        return connect()
    finally:
        connection._dns_host = host  # the name that the certificate is compared with


class Response:
    """A response whose body has not been read. ``what`` names the request in errors, ``write``: it changes something.

    Reading raises TooLarge, Unavailable for a compressed body, TimeoutError, and errors of urllib3.
    """

    def __init__(self, raw: urllib3.BaseHTTPResponse, *, what: str, write: bool) -> None:
        self.status, self.headers = raw.status, raw.headers
        self._raw, self._what, self._write = raw, what, write
        self._deadline: SocketDeadline | None = getattr(raw.connection, "deadline", None)

    @property
    def expired(self) -> bool:
        """Returns whether the response was shut down because it took too long."""
        return self._deadline is not None and self._deadline.expired

    def read(self, allowance: Allowance) -> bytes:
        """The whole body. Raises Unavailable if the allowance's time is over."""
        if time.monotonic() > allowance.until:
            raise self._unavailable("the list takes too long")
        most = min(MAX_BYTES, allowance.left)
        pieces, size = [], 0
        for piece in self._pieces():
            size += len(piece)
            if size > most:
                raise TooLarge(f"{self._what}: the response has more than {most} bytes", ambiguous=self._write)
            pieces.append(piece)
        allowance.left -= size
        return b"".join(pieces)

    def lines(self) -> Iterator[bytes]:
        """The lines of the body, without empty ones. Raises Unavailable for half a line at the end."""
        rest = bytearray()
        for piece in self._pieces():
            rest += piece
            if b"\n" in piece:
                *whole, rest = rest.split(b"\n")
                yield from (bytes(line) for line in whole if line)
            if len(rest) > MAX_LINE:
                raise TooLarge(f"{self._what}: a line has more than {MAX_LINE} bytes")
        if rest.strip():
            raise self._unavailable("connection lost in the middle of a line")

    def close(self) -> None:
        """Ends the response. If it was read completely, its connection is back in the pool already."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._raw.close()
        self._raw.release_conn()

    def _pieces(self) -> Iterator[bytes]:
        """The body as it arrives. API servers compress only for clients that ask for it, and this one never does."""
        encoding = self.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in ("", "identity"):
            raise self._unavailable(f"the response has the encoding {encoding[:60]}")
        while piece := self._raw.read1(CHUNK_BYTES, decode_content=False):
            yield piece
        if self._deadline is not None:  # the connection may serve another request from now on
            self._deadline.cancel()
            self._deadline.check()

    def _unavailable(self, problem: str) -> errors.Unavailable:
        return errors.Unavailable(f"{self._what}: {problem}", ambiguous=self._write)
