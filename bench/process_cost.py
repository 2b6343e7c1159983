"""The CPU that the portal's processes use: on a quiet fleet, in the demo, and for each node that is healed."""

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg

from bench import scene
from bench.drain_reboot_overhead import HEAL
from bench.ingest.server import cpu
from bench.result import Result, scaled
from tests import servers
from tests.story import product as products

QUIET_NODES = 10_000
DEMO_NODES = 200
MIN_DEMO_NODES = 8
HEALED_NODES = 30
SETTLE_SECONDS = 30.0
WINDOW_SECONDS = 60.0
MIN_SECONDS = 1.0
INTERVAL_SECONDS = 1.0

Costs = dict[str, float]  # CPU seconds by process


def idle(scale: float) -> Result:
    """A cluster without faults whose nodes have no agents, and the demo as its users start it."""
    nodes, in_demo = scaled(QUIET_NODES, scale, least=20), scaled(DEMO_NODES, scale, least=MIN_DEMO_NODES)
    window = scaled(WINDOW_SECONDS, scale, least=MIN_SECONDS)
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(nodes=nodes, agents=False, simulator=["--no-workloads"])
        listed = "SELECT count(*) FROM fleet_node"
        product.wait(lambda: scene.ask(product, listed)[0][0] >= nodes, "the nodes to be listed", seconds=300)
        time.sleep(min(SETTLE_SECONDS, window))
        used = costs_within(window, lambda: costs(product))
    with tempfile.TemporaryDirectory() as folder, _demo(Path(folder), in_demo) as process:
        time.sleep(min(SETTLE_SECONDS, window))
        [demo] = costs_within(window, lambda: {"demo": _own_cpu(process)}).values()
    shares = {name: seconds / window for name, seconds in used.items()}
    return Result(
        name="Idle",
        command="make bench ARGS=idle",
        conditions=f"CPU over {window:.0f} s, as a share of one core. {nodes:,} nodes without faults, agents and pods "
        f"on the simulated API server. The demo has {in_demo} nodes with agents and pods; the simulator's own "
        "process is not counted.",
        rows=[
            *((f"{nodes:,} quiet nodes: {name}", f"{share:.1%}", "") for name, share in shares.items()),
            (f"{nodes:,} quiet nodes: all processes", f"{sum(shares.values()):.1%}", "≤ 5 %"),
            ("demo, without its simulator", f"{demo / window:.1%}", "≤ 5 %"),
        ],
    )


def healed_node(scale: float) -> Result:
    """The CPU of whole rescues, less the CPU of as much time without faults."""
    count, interval = scaled(HEALED_NODES, scale, least=2), INTERVAL_SECONDS * scale
    window = scaled(WINDOW_SECONDS, scale, least=MIN_SECONDS)
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(nodes=count + count // 4 + 4, policies=HEAL)
        product.wait(lambda: len(scene.working_nodes(product)) >= count, "the nodes to be listed")
        nodes = scene.working_nodes(product)[:count]
        reporting = "SELECT count(*) FROM fleet_agent"
        product.wait(lambda: scene.ask(product, reporting)[0][0] >= count, "the agents to report")
        time.sleep(SETTLE_SECONDS * scale)
        quiet = costs_within(window, lambda: costs(product))
        began, before = time.monotonic(), costs(product)
        for node in nodes:
            product.inject(node, 62)
            time.sleep(interval)
        for node in nodes:
            product.wait_rescue(node, "succeeded", seconds=180)
        after, seconds = costs(product), time.monotonic() - began
    idle_share = seconds / window
    spent = {name: (after[name] - before[name] - quiet[name] * idle_share) / count * 1000 for name in before}
    return Result(
        name="CPU of a healed node",
        command="make bench ARGS=healed-node",
        conditions=f"{count} rescues, one started every {interval:.1g} s: cordon, drain, reboot by the agent, "
        f"verify, uncordon. CPU of each process during them, less what it used in as much time without faults.",
        rows=[
            *((f"{name}, per rescue", f"{milliseconds:.0f} ms", "") for name, milliseconds in spent.items()),
            ("all processes, per rescue", f"{sum(spent.values()):.0f} ms", ""),
        ],
    )


def costs(product: products.Product) -> Costs:
    """The CPU seconds that each process of the product and PostgreSQL have used so far."""
    own = {name: cpu(product.processes[name].pid) for name in product.names}
    with psycopg.connect(os.environ["KCOVER_DATABASE_URL"]) as connection:
        server = psutil.Process(connection.info.backend_pid).ppid()
    return {**own, "PostgreSQL": cpu(server)}


def costs_within(seconds: float, read: Callable[[], Costs]) -> Costs:
    """The CPU seconds that each process uses within ``seconds``."""
    before = read()
    time.sleep(seconds)
    return {name: used - before[name] for name, used in read().items()}


def _own_cpu(process: subprocess.Popen[bytes]) -> float:
    """The CPU seconds of a demo, without those of its simulator."""
    simulators = [one.pid for one in psutil.Process(process.pid).children() if "simulator" in one.cmdline()]
    return cpu(process.pid) - sum(cpu(pid) for pid in simulators)


@contextmanager
def _demo(folder: Path, nodes: int) -> Iterator[subprocess.Popen[bytes]]:
    """A running demo with its own database."""
    simulator_port = servers.unused_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KCOVER_")},
        "KCOVER_DATABASE_URL": f"sqlite:///{folder}/kcover.sqlite3",
        "KCOVER_DEMO_URL": f"http://127.0.0.1:{simulator_port}",
    }
    demo = [sys.executable, "manage.py", "standalone", "--demo", "--nodes", str(nodes)]
    with (folder / "log").open("wb") as log, servers.listener() as listener:
        port, socket = listener.getsockname()[1], listener.fileno()
        command = [*demo, "--fd", str(socket)]
        process = subprocess.Popen(
            command, cwd=products.ROOT, env=environment, stdout=log, stderr=log, pass_fds=[socket]
        )
        try:
            _until_answered(f"http://127.0.0.1:{port}/healthz")
            yield process
        finally:
            process.terminate()
            process.wait(timeout=30)


def _until_answered(url: str) -> None:
    for _ in range(120):
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(1)
        else:
            return
    raise TimeoutError(url)
