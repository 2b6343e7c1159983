"""The simulator's stand-ins for Loki, gpud and Prometheus, served over HTTP from a thread."""

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web

from simulator.witnesses.gpud import Gpud
from simulator.witnesses.loki import LogStore
from simulator.witnesses.prometheus import Prometheus

PCI = "0000:4e:00"
UUID = "GPU-5d6ef0a4-0001-4000-8000-000000000001"


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that the next request gets instead of the real one."""

    status: int = 200
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()


class StandIns:
    """``active``: the Xids that are present on each node. ``troubles`` are answered first. ``asked``: every path."""

    def __init__(self, nodes: Iterable[str] = ("gpu-1", "gpu-2"), *, pci: str = PCI) -> None:
        self.active: dict[str, list[tuple[int, str]]] = {node: [] for node in nodes}
        self.logs = LogStore()
        self.gpud = Gpud(active=self.active.__getitem__)
        self.prometheus = Prometheus((node, 0, pci, UUID) for node in self.active)
        self.troubles: deque[Answered] = deque()
        self.asked: list[Any] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        @web.middleware
        async def troubled(request: web.Request, handler: Any) -> web.StreamResponse:
            self.asked.append(request)
            if self.troubles:
                trouble = self.troubles.popleft()
                return web.Response(status=trouble.status, body=trouble.body, headers=dict(trouble.headers))
            return await handler(request)

        self._stop = asyncio.Event()
        app = web.Application(middlewares=[troubled])
        app.router.add_get("/loki/api/v1/query_range", self.logs.query_range)
        app.router.add_get("/gpud/{node}/v1/states", self.gpud.states)
        app.router.add_get("/gpud/{node}/v1/events", self.gpud.list_events)
        app.router.add_get("/prometheus/api/v1/query", self.prometheus.query)
        runner = web.AppRunner(app, shutdown_timeout=1, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()
