"""uvicorn's HTTP connections with deadlines for clients that send headers slowly or do not read.

Used with ``uvicorn --http kcover_portal.asgi.http_protocol:DeadlineProtocol``. Bodies have deadlines in ``bodies`` and
in ``api.agent.body``.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from kcover_portal.api import agent
from kcover_portal.config import request_limits

_Base: Any = AutoHTTPProtocol


class DeadlineProtocol(_Base):  # the base is chosen at run time
    """Closes a connection whose request head, or whose reading of a response, takes too long."""

    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        if self._head_timer is None and (before is None or before.response_complete):
            self._expect_head()
        super().data_received(data)
        if self.cycle is not before:
            self._stop_head_timer()

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
