"""One node that reports 1,000 distinct faults per second, and what the other nodes notice of it."""

import asyncio
import itertools
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from bench import scene
from bench.result import Result, percentile, scaled
from tests.story import product as products

MIN_NODES = 10
NODES = 100  # send a heartbeat every 10 s
HEARTBEATS_PER_SECOND = 10.0
FAULTS_PER_SECOND = 1.0  # of the other nodes, each on a node without a fault so far
SECONDS = 60.0  # of each half
NOISY_REPORTS_PER_SECOND = 20
FAULTS_PER_NOISY_REPORT = 50
MIN_FAULTS = 1
DECIDED = """SELECT node.name, extract(epoch FROM rescue.opened_at)::float8
    FROM rescue_rescue rescue JOIN fleet_node node ON node.id = rescue.node_id"""


@dataclass
class Half:
    """The figures of one half. Heartbeats: seconds until the answer. Faults: when each was sent, by node."""

    heartbeats: list[float] = field(default_factory=list)
    faults: dict[str, float] = field(default_factory=dict)
    noisy_answers: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class Fleet:
    """The nodes of the measurement, with a credential and a boot ID for each."""

    url: str
    tokens: dict[str, str]
    boots: dict[str, str]

    async def post(self, session: aiohttp.ClientSession, node: str, faults: Sequence[scene.Json]) -> int:
        """Sends a report and returns the status of the answer."""
        headers = {"Authorization": f"Bearer {self.tokens[node]}", "Content-Type": "application/json"}
        body = scene.report(node, faults, boot_id=self.boots[node])
        async with session.post(self.url, data=body, headers=headers) as answer:
            await answer.read()
            return answer.status


def measure(scale: float) -> Result:
    """The same minute twice on the same product: without the noisy node, then with it."""
    beats = scaled(NODES, scale, least=MIN_NODES)
    seconds = scaled(SECONDS, scale, least=MIN_FAULTS / FAULTS_PER_SECOND)
    faulty = round(seconds * FAULTS_PER_SECOND)
    count = beats + 2 * faulty + 1
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(nodes=count + count // 8 + 8, policies=scene.CORDON, agents=False, simulator=["--no-workloads"])
        product.wait(lambda: len(scene.working_nodes(product)) >= count, "the nodes to be listed", seconds=120)
        names = scene.working_nodes(product)[:count]
        fleet = Fleet(product.url + "/api/v1/agent/reports", scene.tokens(product, names), scene.boots(product))
        scene.send(product, [(fleet.tokens[name], scene.report(name, [], boot_id=fleet.boots[name])) for name in names])
        noisy, beating, fresh = names[0], names[1 : beats + 1], names[beats + 1 :]
        halves = [
            asyncio.run(_run(fleet, beating, fresh[:faulty], seconds=seconds)),
            asyncio.run(_run(fleet, beating, fresh[faulty:], seconds=seconds, noisy=noisy)),
        ]
        product.wait(lambda: len(_decided(product, halves)) == 2 * faulty, "all faults to be decided", seconds=300)
        decided = _decided(product, halves)
        [(incidents,)] = scene.ask(
            product,
            "SELECT count(*) FROM incidents_incident WHERE node_id = (SELECT id FROM fleet_node WHERE name = %s)",
            noisy,
        )
    rows = []
    for half, what in zip(halves, ("quiet", "beside the noisy node"), strict=True):
        decisions = [decided[node] - sent for node, sent in half.faults.items()]
        goals = ("≤ 100 ms", "≤ 1,000 ms") if half.noisy_answers else ("", "")
        rows += [
            (f"{what}: heartbeat durable, P50 / P99", _percentiles(half.heartbeats), goals[0]),
            (f"{what}: fault decided, P50 / P99", _percentiles(decisions), goals[1]),
        ]
    answers = ", ".join(f"{number:,} x {status}" for status, number in sorted(halves[1].noisy_answers.items()))
    return Result(
        name="A noisy node",
        command="make bench ARGS=noisy-node",
        conditions=f"{beats} nodes send {HEARTBEATS_PER_SECOND:.0f} heartbeats per second in all. One fault per second "
        f"occurs on a node without a fault so far, with a cordon-only rule. In the second half, another node sends "
        f"{NOISY_REPORTS_PER_SECOND} reports per second with {FAULTS_PER_NOISY_REPORT} distinct faults each. It does "
        f"not slow down when it is refused. {seconds:.0f} s for each half.",
        rows=[
            *rows,
            ("answers to the noisy node", answers, ""),
            ("incidents of the noisy node", f"{incidents:,}", "≤ 65"),
        ],
    )


def _percentiles(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.1f} / {percentile(seconds, 0.99) * 1000:.1f} ms"


def _decided(product: products.Product, halves: Sequence[Half]) -> dict[str, float]:
    """When each fault that was sent was decided, by node: the rule opens a rescue in the same transaction."""
    sent = {node for half in halves for node in half.faults}
    return {node: at for node, at in scene.ask(product, DECIDED) if node in sent}


async def _run(fleet: Fleet, beating: Sequence[str], faulty: Sequence[str], *, seconds: float, noisy: str = "") -> Half:
    half = Half()
    until = time.monotonic() + seconds
    connections = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connections) as session, asyncio.TaskGroup() as tasks:
        tasks.create_task(_heartbeats(fleet, session, beating, half, until=until))
        tasks.create_task(_faults(fleet, session, faulty, half))
        if noisy:
            tasks.create_task(_noise(fleet, session, noisy, half, until=until))
    return half


async def _heartbeats(
    fleet: Fleet, session: aiohttp.ClientSession, nodes: Sequence[str], half: Half, *, until: float
) -> None:
    async def beat(node: str) -> None:
        began = time.monotonic()
        status = await fleet.post(session, node, [])
        half.heartbeats.append(time.monotonic() - began)
        if status != 202:
            raise RuntimeError(f"{node}: {status}")

    async with asyncio.TaskGroup() as tasks:
        for node in itertools.cycle(nodes):
            if time.monotonic() >= until:
                return
            tasks.create_task(beat(node))
            await asyncio.sleep(1 / HEARTBEATS_PER_SECOND)


async def _faults(fleet: Fleet, session: aiohttp.ClientSession, nodes: Sequence[str], half: Half) -> None:
    for node in nodes:
        half.faults[node] = time.time()
        status = await fleet.post(session, node, [scene.xid(62)])
        if status != 202:
            raise RuntimeError(f"{node}: {status}")
        await asyncio.sleep(1 / FAULTS_PER_SECOND)


async def _noise(fleet: Fleet, session: aiohttp.ClientSession, node: str, half: Half, *, until: float) -> None:
    numbers = itertools.count()

    async def shout() -> None:
        faults = [scene.xid(62, pci=f"{next(numbers) % 65536:04x}:4e:00") for _ in range(FAULTS_PER_NOISY_REPORT)]
        half.noisy_answers[await fleet.post(session, node, faults)] += 1

    async with asyncio.TaskGroup() as tasks:
        while time.monotonic() < until:
            tasks.create_task(shout())
            await asyncio.sleep(1 / NOISY_REPORTS_PER_SECOND)
