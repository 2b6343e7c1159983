"""A fault on many nodes at the same time: how long until all of them are unschedulable."""

import statistics
import tempfile
import time
from pathlib import Path

from bench import result, scene
from bench.result import Result, scaled
from tests.story import product as products

SIZES = (15, 50, 150, 375)
GOALS = {150: "≤ 2 s", 375: "≤ 5 s"}
RUNS = 3
NODES_PER_SPARE = 8  # more nodes are started than get a fault: the simulator keeps some as spares


def measure(scale: float) -> Result:
    """One POST per node, all at once, one cordon-only rule, guards off; several runs, each on other nodes."""
    sizes, times = sorted({scaled(size, scale, least=2) for size in SIZES}), scaled(RUNS, scale, least=1)
    count = sum(sizes) * times
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(
            nodes=count + count // NODES_PER_SPARE + 8,
            policies=scene.CORDON,
            agents=False,
            simulator=["--no-workloads"],
        )
        product.wait(lambda: len(scene.working_nodes(product)) >= count, "the nodes to be listed", seconds=120)
        fresh = iter(scene.working_nodes(product))
        watch = scene.Watch(product, "/api/v1/nodes", scene.cordoned)
        rows, points = [], []
        for size in sizes:
            runs = [_run(product, watch, [next(fresh) for _ in range(size)]) for _ in range(times)]
            seconds = [cordoned for _, cordoned in runs]
            points.append((size, statistics.median(seconds)))
            figure = f"{points[-1][1]:.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"
            rows.append((f"{size} nodes, all cordoned", figure, GOALS.get(size, "")))
            answered = statistics.median(answer for answer, _ in runs)
            rows.append((f"{size} nodes, all reports durable", f"{answered:.2f} s", ""))
    rows.append(("exponent", f"{result.exponent(points):.2f}", "≤ 1"))
    return Result(
        name="Nodes at once",
        command="make bench ARGS=nodes-at-once",
        conditions=f"One report per node, all sent at once over {scene.MAX_CONNECTIONS} connections; median (and "
        f"range) of {times} runs, each on healthy nodes; one cordon-only rule; storm, rate and breaker off. The clock "
        "runs from before the first POST to the arrival of the watch event that shows the last node unschedulable.",
        rows=rows,
    )


def _run(product: products.Product, watch: scene.Watch, nodes: list[str]) -> tuple[float, float]:
    """Seconds until the last report was durable, and until the last node was cordoned."""
    secrets, boots = scene.tokens(product, nodes), scene.boots(product)

    def reports(*faults: scene.Json) -> list[tuple[str, bytes]]:
        return [(secrets[node], scene.report(node, faults, boot_id=boots[node])) for node in nodes]

    scene.send(product, reports())  # the portal already knows the agents
    faulty = reports(scene.xid(62))
    began = time.time()
    answered = scene.send(product, faulty)
    cordoned = watch.wait(nodes, seconds=300)
    scene.settled(product, seconds=300)
    return max(answered) - began, max(cordoned.values()) - began
