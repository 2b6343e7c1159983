"""The gunicorn worker of ``web``: threads get complete requests only, so slow clients occupy none.

Gunicorn's own gthread worker reads a request in a thread and waits for each byte without a time-out. A hundred clients
that send slowly, or that do not close a finished connection, would then stop the process from answering anybody.
"""

import contextlib
import dataclasses
import re
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from http import HTTPStatus
from selectors import EVENT_READ
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

from kcover_portal.config import request_limits

MAX_INCOMPLETE = 500  # requests being received by one process; beyond, the oldest is dropped
LINGER_SECONDS = 2.0  # for a client to close a connection after the response
READ_BYTES = 64 * 1024  # bytes read at a time
END_OF_HEAD = b"\r\n\r\n"
LENGTH = re.compile(rb"[0-9]{1,9}")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class RequestRejected(Exception):
    """The request is answered with this status, without a thread, and its connection is closed."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status)
        self.status = status


@dataclasses.dataclass(slots=True, eq=False)
class IncomingRequest:
    """A request that is being received. ``size``: of head and body, None while the head is incomplete."""

    conn: TConn
    began_at: float
    received: bytearray
    size: int | None = None

    @property
    def complete(self) -> bool:
        return self.size is not None and len(self.received) >= self.size

    def overdue(self, now: float) -> bool:
        allowed = request_limits.HEAD_SECONDS if self.size is None else request_limits.REQUEST_SECONDS
        return now - self.began_at > allowed

    def measure(self) -> bool:
        """Reads the head once it is complete. Returns whether the client waits for permission to send the body.

        Raises RequestRejected.
        """
        if self.size is not None:
            return False
        end = self.received.find(END_OF_HEAD)
        if end < 0:
            if len(self.received) > request_limits.MAX_HEAD:
                raise RequestRejected(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return False
        head = bytes(self.received[:end])
        if head.count(b"\n") != head.count(b"\r\n") or head[:2] in (b"", b"\r\n"):
            # gunicorn might find another end, and wait for it in a thread.
            raise RequestRejected(HTTPStatus.BAD_REQUEST)
        headers = _headers(head)
        if any(name == b"transfer-encoding" for name, _ in headers):
            raise RequestRejected(HTTPStatus.LENGTH_REQUIRED)
        lengths = {value for name, value in headers if name == b"content-length"} or {b"0"}
        if len(lengths) > 1 or not LENGTH.fullmatch(length := lengths.pop()):
            raise RequestRejected(HTTPStatus.BAD_REQUEST)
        if int(length) > request_limits.max_body(headers):
            raise RequestRejected(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        self.size = end + len(END_OF_HEAD) + int(length)
        waits = any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)
        return waits and not self.complete


class WebWorker(ThreadWorker):
    """Receives requests in the loop of the process; see the module. All methods but ``handle…`` run in the loop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._incoming: dict[TConn, IncomingRequest] = {}
        self._received: dict[TConn, bytes] = {}  # complete requests that wait for a thread or are being answered
        self._lingering: dict[TConn, float] = {}
        self._buffered = 0

    def enqueue_req(self, conn: TConn) -> None:
        """Receives the next request of the connection, then passes it to a thread."""
        ahead = conn.parser.unreader.take_buffered() if conn.parser else b""
        incoming = IncomingRequest(conn, time.monotonic(), bytearray(ahead))
        self._buffered += len(ahead)
        conn.sock.setblocking(False)
        self._incoming[conn] = incoming
        self.poller.register(conn.sock, EVENT_READ, self._guarded(conn, partial(self._receive, incoming)))
        if ahead:
            self._guarded(conn, partial(self._advance, incoming))(conn.sock)
        if len(self._incoming) > MAX_INCOMPLETE:
            self._drop(next(iter(self._incoming)))

    def handle(self, conn: TConn) -> Any:
        """Answers a complete request. Runs in a thread."""
        conn.data_ready = True
        conn.init()
        conn.parser.unreader.unread(self._received[conn])
        return super().handle(conn)

    def handle_request(self, req: Any, conn: TConn) -> Any:
        """As in gthread, but a client that does not read is disconnected. Runs in a thread."""
        conn.sock.settimeout(request_limits.WRITE_SECONDS)
        try:
            return super().handle_request(req, conn)
        except TimeoutError:
            self.log.info("Closing a connection whose client does not read.")
            return False

    def finish_request(self, conn: TConn, fs: "Future[Any]") -> None:
        """Closes the connection without waiting for the client, or keeps it alive."""
        self._buffered -= len(self._received.pop(conn, b""))
        if fs.cancelled() or fs.exception() is not None or not fs.result():
            self._linger(conn)
        else:
            super().finish_request(conn, fs)

    def murder_pending(self) -> None:
        """Drops what is overdue; the loop calls it once a second at least."""
        super().murder_pending()
        now = time.monotonic()
        for conn in [one.conn for one in self._incoming.values() if one.overdue(now)]:
            self._drop(conn)
        for conn in [conn for conn, until in self._lingering.items() if until < now]:
            self._drop(conn)

    def _receive(self, incoming: IncomingRequest, client: socket.socket) -> None:
        try:
            piece = client.recv(READ_BYTES)
        except BlockingIOError:
            return
        if not piece:
            self._drop(incoming.conn)
            return
        incoming.received += piece
        self._buffered += len(piece)
        self._advance(incoming, client)

    def _advance(self, incoming: IncomingRequest, client: socket.socket) -> None:
        """Passes the request to a thread if it is complete."""
        try:
            if incoming.measure():
                client.send(CONTINUE)
            while self._buffered > request_limits.MAX_BUFFERED:
                self._make_room(incoming)
        except RequestRejected as refused:
            client.send(_answer(refused.status))
            self._linger(self._forget(incoming.conn))
            return
        if incoming.complete:
            conn = self._forget(incoming.conn)
            self._received[conn] = bytes(incoming.received)
            self._buffered += len(incoming.received)
            super().enqueue_req(conn)

    def _make_room(self, incoming: IncomingRequest) -> None:
        """Drops the largest request that is being received. Raises RequestRejected if it is this one.

        So a few slow clients with large bodies do not keep small requests out.
        """
        largest = max(self._incoming.values(), key=lambda one: len(one.received))
        if largest is incoming:
            raise RequestRejected(HTTPStatus.SERVICE_UNAVAILABLE)
        self._drop(largest.conn)

    def _linger(self, conn: TConn) -> None:
        """Ends the response and gives the client time to close the connection, so that it can read the answer."""
        try:
            conn.sock.setblocking(False)
            conn.sock.shutdown(socket.SHUT_WR)
            self.poller.register(conn.sock, EVENT_READ, self._guarded(conn, partial(self._discard, conn)))
        except (OSError, ValueError, KeyError):
            self._close(conn)
        else:
            self._lingering[conn] = time.monotonic() + LINGER_SECONDS

    def _discard(self, conn: TConn, client: socket.socket) -> None:
        if not client.recv(READ_BYTES):
            self._drop(conn)

    def _guarded(self, conn: TConn, act: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
        """The callback, which drops the connection if the client has closed it."""

        def call(client: socket.socket) -> None:
            try:
                act(client)
            except OSError:
                self._drop(conn)

        return call

    def _forget(self, conn: TConn) -> TConn:
        """Takes the connection out of the poller."""
        incoming = self._incoming.pop(conn, None)
        if incoming is not None:
            self._buffered -= len(incoming.received)
        self._lingering.pop(conn, None)
        with contextlib.suppress(OSError, KeyError, ValueError):  # it was not registered
            self.poller.unregister(conn.sock)
        return conn

    def _drop(self, conn: TConn) -> None:
        self._close(self._forget(conn))

    def _close(self, conn: TConn) -> None:
        self.nr_conns -= 1
        conn.close()


def _headers(head: bytes) -> list[tuple[bytes, bytes]]:
    pairs = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return [(name.lower(), value.strip(b" \t")) for name, _, value in pairs]


def _answer(status: HTTPStatus) -> bytes:
    body = f"{status.phrase}\n".encode()
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    again = "Retry-After: 5\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else ""
    return f"{head}{again}Connection: close\r\n\r\n".encode() + body
