"""From a line in the kernel log of a node to the node unschedulable on the API server, including the agent."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import scene
from bench.result import Result, scaled, spread
from tests.story import product as products

NODES = 25
INTERVAL_SECONDS = 1.0
LINE = "4,%d,%d,-;NVRM: Xid (PCI:0000:4e:00): 62, pid='<unknown>', name=<unknown>, bench\n"


def measure(scale: float) -> Result:
    """One agent process per node, started as on a real node; one line each, one after the other."""
    count, interval = scaled(NODES, scale, least=2), INTERVAL_SECONDS * scale
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(nodes=count + 10, policies=scene.CORDON, agents=False, simulator=["--no-workloads"])
        nodes = scene.working_nodes(product)[:count]
        secrets, boots = scene.tokens(product, nodes), scene.boots(product)
        watch = scene.Watch(product, "/api/v1/nodes", scene.cordoned)
        with contextlib.ExitStack() as running:
            logs = {
                node: running.enter_context(_agent(product, node, secrets[node], boot_id=boots[node])) for node in nodes
            }
            product.wait(lambda: _reporting(product) >= count, "the agents to report", seconds=120)
            latencies = []
            for number, node in enumerate(nodes):
                began = time.time()
                os.write(logs[node], (LINE % (number + 1, time.monotonic_ns() // 1000)).encode())
                latencies.append((watch.wait([node], seconds=60)[node] - began) * 1000)
                time.sleep(interval)
    goals = {"P99": "≤ 1,000 ms"}
    return Result(
        name="Kernel line to cordon",
        command="make bench ARGS=line-to-cordon",
        conditions=f"{count} agent processes, each with a pipe in place of /dev/kmsg; one line each, "
        f"{interval:.1g} s apart. The clock runs from before the line is written to the arrival of the watch "
        "event that shows the node unschedulable.",
        rows=[(f"line to unschedulable, {what}", figure, goals.get(what, "")) for what, figure in spread(latencies)],
    )


@contextlib.contextmanager
def _agent(product: products.Product, node: str, token: str, *, boot_id: str) -> Iterator[int]:
    """The agent of a simulated node, with its boot id; yields the writing end of its kernel log."""
    home = Path(product.folder) / f"agent-{node}"
    home.mkdir()
    (home / "boot_id").write_text(boot_id)
    os.mkfifo(home / "kmsg")
    held = os.open(home / "kmsg", os.O_RDWR | os.O_NONBLOCK)  # otherwise the agent reads a pipe without a writer
    settings = {
        "NODE_NAME": node,
        "KCOVER_AGENT_URL": product.url,
        "KCOVER_AGENT_TOKEN": token,
        "KCOVER_AGENT_BOOT_ID": str(home / "boot_id"),
        "KCOVER_AGENT_KMSG": str(home / "kmsg"),
        "KCOVER_AGENT_SPOOL": str(home / "spool"),
        "KCOVER_AGENT_CHECKS": "none",
        "KCOVER_AGENT_LISTEN": "none",
    }
    process = subprocess.Popen(
        (sys.executable, "-m", "agents"), cwd=products.ROOT, env=os.environ | settings, stderr=subprocess.DEVNULL
    )
    try:
        yield held
    finally:
        process.terminate()
        process.wait(timeout=20)
        os.close(held)


def _reporting(product: products.Product) -> int:
    return int(scene.ask(product, "SELECT count(*) FROM fleet_agent")[0][0])
