"""A fault on many nodes in the same moment: how long until all of them take no more work."""

import statistics
import tempfile
import time
from pathlib import Path

from bench import result, scene
from bench.result import Result
from tests.story import product as products

SIZES = (15, 50, 150, 375)
GOALS = {150: "≤ 2 s", 375: "≤ 5 s"}
RUNS = 3
NODES_PER_SPARE = 8  # more are started than are hurt: the simulator keeps some of them as spares


def measure(scale: float) -> Result:
    """One POST a node, all at once, one cordon-only rule, guards off; several runs, each on nodes of its own."""
    sizes = [max(2, round(size * scale)) for size in SIZES]
    wanted = sum(sizes) * RUNS
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(
            nodes=wanted + wanted // NODES_PER_SPARE + 8,
            policies=scene.CORDON,
            agents=False,
            simulator=["--no-workloads"],
        )
        product.wait(lambda: len(scene.working_nodes(product)) >= wanted, "the nodes to be listed", seconds=120)
        fresh = iter(scene.working_nodes(product))
        watch = scene.Watch(product, "/api/v1/nodes", scene.cordoned)
        rows, points = [], []
        for size in sizes:
            runs = [_run(product, watch, [next(fresh) for _ in range(size)]) for _ in range(RUNS)]
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
        conditions=f"One report a node, all sent at once over {scene.AT_ONE_TIME} connections; median (and range) of "
        f"{RUNS} runs, each on nodes that were well; one cordon-only rule; storm, rate and breaker off. The clock runs "
        "from before the first POST to the arrival of the watch event that shows the last node unschedulable.",
        rows=rows,
    )


def _run(product: products.Product, watch: scene.Watch, nodes: list[str]) -> tuple[float, float]:
    """Seconds until the last report was durable, and until the last node was cordoned."""
    secrets, boots = scene.tokens(product, nodes), scene.boots(product)

    def reports(*faults: scene.Json) -> list[tuple[str, bytes]]:
        return [(secrets[node], scene.report(node, faults, boot_id=boots[node])) for node in nodes]

    scene.send(product, reports())  # agents are no strangers
    told = reports(scene.xid(62))
    began = time.time()
    answered = scene.send(product, told)
    cordoned = watch.wait(nodes, seconds=300)
    scene.settled(product, seconds=300)
    return max(answered) - began, max(cordoned.values()) - began
