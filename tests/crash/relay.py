"""A TCP relay in front of servers that are killed and started again, and which can itself be away."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

from tests.servers import reserved_port

CONNECT_SECONDS = 2.0
CHUNK = 64 * 1024
BACKLOG = 1024


class Relay:
    """Each connection goes to the next of ``ports`` that accepts one, as at a load balancer in front of replicas.

    A connection that none accepts is closed without an answer.
    """

    def __init__(self, *ports: int) -> None:
        self._kept = reserved_port()
        self.port = self._kept.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._ports: Sequence[int] = ports
        self._next = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.open()

    def open(self) -> None:
        """Accepts connections (again)."""
        self._run(self._open())

    def close(self) -> None:
        """Cuts every connection and refuses new ones."""
        self._run(self._close())

    def stop(self) -> None:
        """Closes it for good."""
        self.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._kept.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, backlog=BACKLOG)

    async def _close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        cut = list(self._connections)
        for connection in cut:
            connection.cancel()
        await asyncio.gather(*cut, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._carry(reader, writer)
        except asyncio.CancelledError:
            pass  # by _close
        finally:
            self._connections.discard(task)
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self._ports:
            port = self._ports[self._next % len(self._ports)]
            self._next += 1
            try:
                far = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), CONNECT_SECONDS)
            except (OSError, TimeoutError):
                continue
            try:
                await asyncio.gather(_pump(reader, far[1]), _pump(far[0], writer))
            finally:
                far[1].close()
            return


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carries bytes until one side ends, and then ends the other."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()
