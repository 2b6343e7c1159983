"""uvicorn's HTTP connections with deadlines for slow clients, and without requests that two servers read differently.

Used with ``uvicorn --http kcover_portal.asgi.http_protocol:DeadlineProtocol``. Bodies have deadlines in ``bodies`` and
in ``api.agent.body``.
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kcover_portal.api import agent
from kcover_portal.config import request_limits

_Base: Any = HttpToolsProtocol

TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
ONLY_ONCE = frozenset((b"host", b"content-type", b"content-length", b"transfer-encoding"))


MAX_AHEAD = 4  # requests that a client may send before the first of them is answered


class RefusedHead(ValueError):
    """The head is answered with 400, and its connection is closed."""


class DeadlineProtocol(_Base):  # mypy sees no types in httptools
    """Closes a connection whose request head, or whose reading of a response, takes too long.

    A head is refused if a proxy in front could find another end of its body than this server does. Names with an
    underscore are dropped, because WSGI would take them for those with a hyphen that the proxy sets; trailers, too.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _in_head = False
    _head_size = 0  # bytes so far of a head that arrives in several pieces
    _heads_size: ClassVar[int] = 0  # of all connections of this process
    _idle_size = 0  # bytes of a body since its last piece: lengths of chunks, their extensions, trailers

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        if self._head_timer is None and (before is None or before.response_complete):
            self._expect_head()
        self._idle_size += len(data)
        super().data_received(data)
        if self.cycle is not before:
            self._stop_head_timer()
        if self.transport.is_closing():
            return
        if self._in_head:
            self._count_head(len(data))
        elif self._idle_size > request_limits.MAX_HEAD:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._in_head, self._idle_size = True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keeps headers, and no trailers."""
        if self._in_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._idle_size = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._idle_size = 0
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        """Raises RefusedHead, which the parser's caller answers."""
        self._in_head, self._idle_size = False, 0
        self._forget_head()
        self._check_head()
        self.scope["headers"] = [one for one in self.headers if b"_" not in one[0]]
        super().on_headers_complete()
        if len(self.pipeline) > MAX_AHEAD:
            raise RefusedHead("too many requests ahead")

    def send_400_response(self, msg: str) -> None:
        """Refuses a request. It ends the connection only, if the answer would get into that of an earlier request."""
        if self._is_answering():
            self.transport.abort()
        else:
            super().send_400_response(msg)

    def handle_websocket_upgrade(self, *args: Any) -> None:
        self._stop_timers()  # the connection gets another protocol
        super().handle_websocket_upgrade(*args)

    def pause_writing(self) -> None:
        """The client has not read for a while; from now on it has WRITE_SECONDS."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(request_limits.WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def shutdown(self) -> None:
        """The process stops. Long polls end now; other requests may complete."""
        super().shutdown()
        agent.stop()

    def _count_head(self, size: int) -> None:
        self._head_size += size
        DeadlineProtocol._heads_size += size
        too_large = self._head_size > request_limits.MAX_HEAD
        if DeadlineProtocol._heads_size > request_limits.MAX_HEADS or (too_large and self._is_answering()):
            self.transport.abort()
        elif too_large:
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def _is_answering(self) -> bool:
        """Returns whether a request that was received whole, or whose answer has begun, is not answered yet."""
        last = self.cycle
        if last is None or last.response_complete:
            return False
        return bool(self.pipeline) or last.response_started or not last.more_body

    def _forget_head(self) -> None:
        if self._head_size:
            DeadlineProtocol._heads_size -= self._head_size
            self._head_size = 0

    def _check_head(self) -> None:
        """Raises RefusedHead."""
        version, size, once = self.parser.get_http_version(), len(self.url), dict[bytes, bytes]()
        for name, value in self.headers:
            size += len(name) + len(value)
            if name in ONLY_ONCE:
                if name in once:
                    raise RefusedHead("twice")
                once[name] = value
        if version not in ("1.0", "1.1"):
            raise RefusedHead(f"HTTP/{version}")
        if size > request_limits.MAX_HEAD:
            raise RefusedHead("too large")
        chunks, length = once.get(b"transfer-encoding"), once.get(b"content-length", b"0")
        if chunks is not None and (chunks.lower() != b"chunked" or version == "1.0" or b"content-length" in once):
            raise RefusedHead("Transfer-Encoding")
        if self.parser.should_upgrade() and (chunks is not None or length != b"0"):
            raise RefusedHead("Upgrade")  # the parser takes the body for what follows the upgrade

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(request_limits.HEAD_SECONDS, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_timers(self) -> None:
        self._stop_head_timer()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
