"""A thousand agents for ten minutes, while the portal and some agents are killed: is every line counted once?"""

import functools
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import psycopg

from bench import scene
from bench.agents import fleet
from bench.ingest import server
from bench.result import Result, scaled, spread
from kcover.faults import xid
from simulator.world import machine
from tests.story import product as products
from tests.story.product import ROOT, Product

AGENTS = 1_000
MIN_AGENTS = 10
DURATION_SECONDS = 600.0
MIN_SECONDS = 8.0  # a killed process needs some to start again
HEARTBEAT_SECONDS = 30.0
WRITES_PER_SECOND = 10.0  # over all nodes
STORM_SHARE = 0.1  # of the writes
STORM_LINES = 20
DOWN_SECONDS = 5.0  # until live is started again after kill -9
FAULTS_PER_NODE = 2  # (GPU, code) pairs that fail again and again
CODES = (13, 31, 48, 62, 64, 74, 95, 119, 120, 140)
NODES_PER_SPARE = 8  # the simulator keeps some nodes as spares, which are not measured
COUNTED = """SELECT n.name, i.code, i.device, sum(i.count) FROM incidents_incident i
    JOIN fleet_node n ON n.id = i.node_id WHERE i.kind = 'xid' GROUP BY 1, 2, 3"""

Key = tuple[str, str, str]  # (node, code, slot)


class Kernels:
    """The kernel logs of all nodes in the format of ``/dev/kmsg``, and how often each fault was written."""

    def __init__(self, folder: Path, nodes: list[str], *, rng: random.Random) -> None:
        self._folder, self._nodes, self._rng = folder, nodes, rng
        self._sequence = dict.fromkeys(nodes, 0)
        self._faults = {
            node: [(rng.choice(CODES), machine.pci(rng.randrange(8))) for _ in range(FAULTS_PER_NODE)] for node in nodes
        }
        self.written: Counter[Key] = Counter()
        for node in nodes:
            (folder / node).mkdir()
            self._print(node, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05")

    def write_fault(self) -> None:
        """Writes a fault line for a random node, sometimes a storm of equal lines."""
        node = self._rng.choice(self._nodes)
        code, pci = self._rng.choice(self._faults[node])
        lines = STORM_LINES if self._rng.random() < STORM_SHARE else 1
        for _ in range(lines):
            self._print(node, f"NVRM: Xid (PCI:{pci}): {code}, pid='<unknown>', name=<unknown>, bench")
        self.written[node, str(code), xid.slot(pci) or pci] += lines

    def rotate(self) -> None:
        """Renames every log and starts a new one."""
        for node in self._nodes:
            log = self._folder / node / fleet.KMSG
            log.rename(log.with_name(f"{fleet.KMSG}.1"))
            self._print(node, "NVRM: a log that was rotated")

    def _print(self, node: str, text: str) -> None:
        self._sequence[node] += 1
        with (self._folder / node / fleet.KMSG).open("a", encoding="utf-8") as log:
            log.write(f"4,{self._sequence[node]},{time.monotonic_ns() // 1000},-;{text}\n")


class Meter:
    """CPU seconds of the portal's processes. Killed processes count as far as they were sampled."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self._used: dict[tuple[str, int], float] = {}
        self._before: dict[str, float] = {}
        self._postgres = _postmaster(product)

    def sample(self) -> None:
        """Records the CPU time of each process. Call it often: time used between the last call and a kill is lost."""
        running = {name: process.pid for name, process in self._product.processes.items()}
        for name, pid in (running | {"PostgreSQL": self._postgres}).items():
            try:
                self._used[name, pid] = server.cpu(pid)
            except psutil.NoSuchProcess:
                continue

    def begin(self) -> None:
        self.sample()
        self._before = self._totals()

    def used(self) -> dict[str, float]:
        """CPU seconds by process since ``begin``."""
        return {name: seconds - self._before.get(name, 0.0) for name, seconds in self._totals().items()}

    def _totals(self) -> dict[str, float]:
        totals: dict[str, float] = {}
        for (name, _), seconds in self._used.items():
            totals[name] = totals.get(name, 0.0) + seconds
        return totals


def measure(scale: float) -> Result:
    """Number of agents, pace and duration shrink with the scale; the kills do not."""
    count, seconds = scaled(AGENTS, scale, least=MIN_AGENTS), scaled(DURATION_SECONDS, scale, least=MIN_SECONDS)
    raise_file_limit()
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(
            nodes=count + count // NODES_PER_SPARE + 8,
            policies=scene.CORDON,
            agents=False,
            simulator=["--no-workloads"],
        )
        product.wait(lambda: len(scene.working_nodes(product)) >= count, "the nodes to be listed", seconds=120)
        nodes = scene.working_nodes(product)[:count]
        logs = Path(folder) / "nodes"
        logs.mkdir()
        kernels = Kernels(logs, nodes, rng=random.Random(4))
        plan = fleet.Plan(
            url=product.url,
            token=(Path(folder) / "enrolment").read_text(),
            folder=str(logs),
            nodes=nodes,
            boots=scene.boots(product),
            heartbeat=max(2.0, HEARTBEAT_SECONDS * min(1.0, seconds / DURATION_SECONDS * 5)),
        )
        meter = Meter(product)
        outcome = _run(product, plan, kernels, meter, seconds=seconds)
        counted = {(node, code, device): int(n) for node, code, device, n in scene.ask(product, COUNTED)}
    return _result(kernels.written, counted, outcome, meter.used(), agents=count, seconds=seconds, plan=plan)


def _run(product: Product, plan: fleet.Plan, kernels: Kernels, meter: Meter, *, seconds: float) -> fleet.FleetResult:
    """Runs the agents while logs are written and processes are killed."""
    agents = subprocess.Popen(
        [sys.executable, "-m", "bench.agents.fleet"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert agents.stdin is not None
    assert agents.stdout is not None
    with agents:
        try:
            agents.stdin.write(json.dumps(asdict(plan)) + "\n")
            if agents.stdout.readline() != "ready\n":
                raise RuntimeError(f"the agents ended with {agents.wait()}\n{product.logs()}")
            meter.begin()
            crash = functools.partial(agents.stdin.write, "crash\n")
            _write_and_kill(product, kernels, meter, crash, rate=WRITES_PER_SECOND * _share(plan), seconds=seconds)
            agents.stdin.write("stop\n")
            found = agents.stdout.read()
            meter.sample()
            if agents.wait():
                raise RuntimeError(f"the agents ended with {agents.returncode}")
        finally:
            agents.kill()
    return fleet.FleetResult(**json.loads(found))


def _write_and_kill(
    product: Product,
    kernels: Kernels,
    meter: Meter,
    crash: Callable[[], Any],
    *,
    rate: float,
    seconds: float,
) -> None:
    """Writes to the logs at an even pace, and meanwhile kills or restarts everything that a report passes through."""
    down = min(DOWN_SECONDS, seconds * 0.1)
    interruptions: list[tuple[float, Callable[[], Any]]] = [
        (seconds * 0.25, lambda: product.kill("live")),
        (seconds * 0.25 + down, lambda: product.start("live")),
        (seconds * 0.45, kernels.rotate),
        (seconds * 0.55, lambda: _restart(product, "live")),
        (seconds * 0.70, crash),
        (seconds * 0.80, lambda: product.kill("worker")),
        (seconds * 0.80 + 1.0, lambda: product.start("worker")),
    ]
    began = sampled = time.monotonic()
    written = 0
    while (elapsed := time.monotonic() - began) < seconds:
        while written < elapsed * rate:
            kernels.write_fault()
            written += 1
        while interruptions and interruptions[0][0] <= elapsed:
            meter.sample()
            interruptions.pop(0)[1]()
        if time.monotonic() > sampled + 1.0:
            sampled = time.monotonic()
            meter.sample()
        time.sleep(0.05)


def _restart(product: Product, name: str) -> None:
    """Restarts the process gracefully, as an upgrade does."""
    process = product.processes.pop(name)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=30)
    product.start(name)


def _result(
    written: Counter[Key],
    counted: dict[Key, int],
    outcome: fleet.FleetResult,
    used: dict[str, float],
    *,
    agents: int,
    seconds: float,
    plan: fleet.Plan,
) -> Result:
    lost, twice = compare(written, counted)
    portal = {name: seconds_used for name, seconds_used in used.items() if name in ("live", "worker", "beat", "watch")}
    milliseconds = [latency * 1000 for latency in outcome.latencies]
    cores = ", ".join(f"{name} {cpu / seconds:.2f}" for name, cpu in portal.items())
    return Result(
        name="A thousand agents",
        command="make bench ARGS=agents-1000",
        conditions=f"{agents:,} agents for {seconds:.0f} s in one process, each with its own loop, spool on disk, "
        f"enrolment and HTTP connection, a heartbeat every {plan.heartbeat:.0f} s and a long poll; "
        f"{WRITES_PER_SECOND * _share(plan):.1f} times a second, one of their kernel logs gets a fault line or "
        f"({STORM_SHARE:.0%}) a storm of {STORM_LINES}. live, worker, beat, watch and the simulated API server run "
        "beside them; one cordon-only rule. Meanwhile: kill -9 of live "
        f"({min(DOWN_SECONDS, seconds * 0.1):.0f} s down), all logs rotated, live restarted gracefully, a tenth of the "
        "agents crashed and restarted from disk, kill -9 of worker. Lines are compared with the incidents' counts by "
        "node, code and GPU.",
        rows=[
            ("reports acknowledged", f"{len(outcome.latencies):,}", ""),
            ("POSTs that failed and were retried", f"{outcome.failures:,}", ""),
            ("agents crashed and restarted", f"{outcome.crashed:,}", ""),
            ("fault lines written", f"{written.total():,}", ""),
            ("fault lines counted in the database", f"{sum(counted.values()):,}", ""),
            ("distinct faults (incidents)", f"{len(written):,}", ""),
            ("lost", f"{lost:,}", "0"),
            ("counted twice", f"{twice:,}", "0"),
            ("left in a spool", f"{outcome.left:,}", "0"),
            *((f"POST to durable answer, {what}", figure, "") for what, figure in spread(milliseconds)),
            ("CPU per agent", f"{outcome.cpu / outcome.wall / agents:.3%} of a core", ""),
            ("memory per agent", f"{outcome.rss / agents / 1024:,.0f} KiB", ""),
            ("CPU of the portal, cores", f"{sum(portal.values()) / seconds:.2f} ({cores})", ""),
            ("CPU of PostgreSQL, cores", f"{used.get('PostgreSQL', 0.0) / seconds:.2f}", ""),
        ],
    )


def compare(written: Counter[Key], counted: dict[Key, int]) -> tuple[int, int]:
    """The number of lines that were not counted, and the number of counts without a line."""
    keys = {*written, *counted}
    differences = [counted.get(key, 0) - written.get(key, 0) for key in keys]
    return -sum(min(0, difference) for difference in differences), sum(max(0, difference) for difference in differences)


def _share(plan: fleet.Plan) -> float:
    return len(plan.nodes) / AGENTS


def _postmaster(product: Product) -> int:
    with psycopg.connect(product.environment["KCOVER_DATABASE_URL"]) as connection:
        return psutil.Process(connection.info.backend_pid).ppid()


def raise_file_limit() -> None:
    """Raises the limit of open files: 1,024 are too few for two connections per agent."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
