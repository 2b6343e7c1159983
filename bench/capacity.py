"""The disk that nodes and rescues take, and the memory of the processes: what to provide for a fleet."""

import tempfile
import time
from pathlib import Path

import psutil
import psycopg

from bench import scene
from bench.drain_reboot_overhead import HEAL
from bench.result import Result, scaled
from tests.story import product as products

QUIET_NODES = 10_000
HEALED_NODES = 120
SETTLE_SECONDS = 30.0
KIB, MIB = 1024, 1024 * 1024

Sizes = dict[str, int]  # bytes by table, with its indexes


def measure(scale: float) -> Result:
    """The rows of a quiet fleet, of nodes that report, and of rescues; the memory of each process."""
    nodes, healed = scaled(QUIET_NODES, scale, least=20), scaled(HEALED_NODES, scale, least=2)
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(nodes=2, agents=False, simulator=["--no-workloads"])
        empty = sum(_sizes(product).values())
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(nodes=nodes, agents=False, simulator=["--no-workloads"])
        listed = "SELECT count(*) FROM fleet_node"
        product.wait(lambda: scene.ask(product, listed)[0][0] >= nodes, "the nodes to be listed", seconds=600)
        time.sleep(SETTLE_SECONDS * scale)
        quiet, memory = sum(_sizes(product).values()), _memory(product)
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(nodes=healed + healed // 4 + 4, policies=HEAL)
        product.wait(lambda: len(scene.working_nodes(product)) >= healed, "the nodes to be listed")
        chosen = scene.working_nodes(product)[:healed]
        reporting = "SELECT count(DISTINCT node_id) FROM fleet_checkresult"
        product.wait(lambda: scene.ask(product, reporting)[0][0] >= healed, "the agents to report", seconds=300)
        time.sleep(SETTLE_SECONDS * scale)
        before = _sizes(product)
        for node in chosen:
            product.inject(node, 62)
            time.sleep(0.5)
        for node in chosen:
            product.wait_rescue(node, "succeeded", seconds=600)
        time.sleep(SETTLE_SECONDS * scale)
        after = _sizes(product)
        [(reported,)] = scene.ask(product, reporting)
    grown = {table: size - before.get(table, 0) for table, size in after.items()}
    largest = sorted(grown, key=lambda table: -grown[table])[:4]
    return Result(
        name="Capacity",
        command="make bench ARGS=capacity",
        conditions=f"PostgreSQL's tables with their indexes, after VACUUM FULL. {nodes:,} nodes without agents; "
        f"{reported} nodes with 8 GPUs whose agents report; {healed} rescues of cordon, drain, reboot, verify and "
        "uncordon, with everything that is kept about them. Memory is the proportional set size of a process with its "
        "children.",
        rows=[
            ("an empty portal", f"{empty / MIB:.0f} MiB", ""),
            ("a node without an agent", f"{(quiet - empty) / nodes / KIB:.1f} KiB", ""),
            ("a node that reports", f"{(sum(before.values()) - empty) / reported / KIB:.0f} KiB", ""),
            ("a rescue", f"{sum(grown.values()) / healed / KIB:.0f} KiB", ""),
            *((f"a rescue: {table}", f"{grown[table] / healed / KIB:.1f} KiB", "") for table in largest),
            *((f"memory, {nodes:,} nodes: {name}", f"{size / MIB:.0f} MiB", "") for name, size in memory.items()),
        ],
    )


def _sizes(product: products.Product) -> Sizes:
    """The bytes of each table, without the space of deleted rows."""
    with psycopg.connect(product.environment["KCOVER_DATABASE_URL"], autocommit=True) as connection:
        connection.execute("VACUUM FULL")
        found = connection.execute(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
            "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        return {str(name): int(size) for name, size in found}


def _memory(product: products.Product) -> dict[str, int]:
    """The bytes of each process of the product."""
    return {name: _own_memory(product.processes[name].pid) for name in product.names}


def _own_memory(pid: int) -> int:
    process = psutil.Process(pid)
    return sum(int(one.memory_full_info().pss) for one in (process, *process.children(recursive=True)))
