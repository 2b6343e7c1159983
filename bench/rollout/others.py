"""The rest of the fleet: heartbeats and faults of nodes that reported before the roll-out."""

import asyncio
import itertools
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import aiohttp

from bench import scene
from bench.result import percentile
from tests.story.product import Product

HEARTBEATS_PER_SECOND = 20.0
FAULTS_PER_SECOND = 1.0  # each on a node without a fault so far
RETRY_SECONDS = 0.5
DECIDED = """SELECT node.name, extract(epoch FROM rescue.opened_at)::float8
    FROM rescue_rescue rescue JOIN fleet_node node ON node.id = rescue.node_id"""


@dataclass
class Phase:
    """Heartbeats: seconds until the durable answer, with repetitions. Faults: when each was sent, by node."""

    name: str
    heartbeats: list[float] = field(default_factory=list)
    faults: dict[str, float] = field(default_factory=dict)
    repeated: int = 0


class Others:
    """Their requests run in a thread; each phase has figures of its own."""

    def __init__(self, product: Product, *, beating: Sequence[str], fresh: Sequence[str]) -> None:
        """``fresh``: nodes for faults."""
        names = [*beating, *fresh]
        self._url = product.url + "/api/v1/agent/reports"
        self._tokens, self._boots = scene.tokens(product, names), scene.boots(product)
        self._beating, self._fresh = beating, iter(fresh)
        self.phases: list[Phase] = []
        scene.send(product, [(self._tokens[name], self._report(name)) for name in names])

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Sends heartbeats and faults until the block ends."""
        found, over, failed = Phase(name), threading.Event(), []
        self.phases.append(found)

        def send() -> None:
            try:
                asyncio.run(self._send(found, over))
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if failed:
            raise failed[0]

    def rows(self, product: Product, *, seconds: float) -> list[tuple[str, str, str]]:
        """The figures of each phase, once all faults are decided."""
        sent = {node for phase in self.phases for node in phase.faults}
        product.wait(lambda: sent <= _decided(product).keys(), "all faults to be decided", seconds=seconds)
        decided = _decided(product)
        rows = []
        for phase in self.phases:
            decisions = [decided[node] - at for node, at in phase.faults.items()]
            rows += [
                (f"{phase.name}: heartbeat durable, P50 / P99", _percentiles(phase.heartbeats), ""),
                (f"{phase.name}: fault decided, P50 / P99", _percentiles(decisions), ""),
                (f"{phase.name}: requests that were repeated", f"{phase.repeated:,}", ""),
            ]
        return rows

    async def _send(self, phase: Phase, over: threading.Event) -> None:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(self._faults(session, phase, over))
            for node in itertools.cycle(self._beating):
                if over.is_set():
                    return
                tasks.create_task(self._beat(session, phase, node))
                await asyncio.sleep(1 / HEARTBEATS_PER_SECOND)

    async def _beat(self, session: aiohttp.ClientSession, phase: Phase, node: str) -> None:
        began = time.monotonic()
        await self._post(session, phase, node, self._report(node))
        phase.heartbeats.append(time.monotonic() - began)

    async def _faults(self, session: aiohttp.ClientSession, phase: Phase, over: threading.Event) -> None:
        while not over.is_set():
            node = next(self._fresh)
            phase.faults[node] = time.time()
            await self._post(session, phase, node, self._report(node, scene.xid(62)))
            await asyncio.sleep(1 / FAULTS_PER_SECOND)

    async def _post(self, session: aiohttp.ClientSession, phase: Phase, node: str, body: bytes) -> None:
        headers = {"Authorization": f"Bearer {self._tokens[node]}", "Content-Type": "application/json"}
        limit = aiohttp.ClientTimeout(total=10)
        while True:
            try:
                async with session.post(self._url, data=body, headers=headers, timeout=limit) as answer:
                    await answer.read()
                    if answer.status == 202:
                        return
            except (aiohttp.ClientError, TimeoutError, OSError):
                pass
            phase.repeated += 1
            await asyncio.sleep(RETRY_SECONDS)

    def _report(self, node: str, *faults: scene.Json) -> bytes:
        return scene.report(node, faults, boot_id=self._boots[node])


def _percentiles(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.1f} / {percentile(seconds, 0.99) * 1000:.1f} ms"


def _decided(product: Product) -> dict[str, float]:
    """When each fault was decided, by node: the rule opens a rescue in the same transaction."""
    return dict(scene.ask(product, DECIDED))
