"""The stages between a fault's report and its node's cordon, in milliseconds.

The worker is stopped, and one process does what the endpoint and the worker do, so that each part can be measured:
``python -m bench.fault_stages [NODES, WARM_UP]`` prints a JSON object; the parent runs it with the environment of the
product.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import scene
from bench.result import Result, scaled
from tests.story import product as products

FAULTS = 40
WARM_UP = 5  # faults that are not counted: caches and connections
STAGES = (
    ("decode", "decode the report"),
    ("ingest", "store it: one transaction, durable"),
    ("decide", "decide and open the rescue: one transaction, durable"),
    ("before PATCH", "last check before the write"),
    ("cordon", "read and patch the node (API server included)"),
    ("after PATCH", "settle the step, the Events"),
)


def measure(scale: float) -> Result:
    """Times of the stages of one fault, and how many statements each takes."""
    faults, warm_up = scaled(FAULTS, scale, least=2), scaled(WARM_UP, scale, least=1)
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(nodes=faults + warm_up + 10, policies=scene.CORDON, agents=False)
        nodes = scene.working_nodes(product)[: faults + warm_up]
        for name in ("worker", "beat"):
            product.kill(name)
        found = json.loads(scene.run_inside(product, "bench.fault_stages", json.dumps([nodes, warm_up])))
    rows = []
    for key, title in STAGES:
        part = found[key]
        rows.append((title, f"{part['ms']:.1f} ms", f"{part['statements']:.0f} statements, {part['sql_ms']:.1f} ms"))
    until = sum(found[key]["ms"] for key, _ in STAGES[:-1])
    rows.append(("sum up to the PATCH's answer", f"{until:.1f} ms", ""))
    return Result(
        name="Stages of a fault",
        command="make bench ARGS=fault-stages",
        conditions=f"Medians over {faults} faults, one after the other, each on another node. One process does what "
        "the endpoint and the worker do. The third column is SQL: statements and their time. The rest of a stage is "
        "Python, and in the fifth the API server.",
        rows=rows,
    )


class _Clock:
    """Times of the present fault by stage: in all, in SQL, and the number of statements."""

    def __init__(self) -> None:
        self.stage = ""
        self.parts: dict[str, dict[str, float]] = defaultdict(lambda: {"ms": 0.0, "sql_ms": 0.0, "statements": 0})
        self._since = time.perf_counter()

    def enter(self, stage: str) -> None:
        now = time.perf_counter()
        if self.stage:
            self.parts[self.stage]["ms"] += (now - self._since) * 1000
        self.stage, self._since = stage, now

    @contextmanager
    def around(self, owner: Any, name: str, stage: str, after: str) -> Iterator[None]:
        """Times the calls of a method as ``stage``; what follows them is ``after``."""
        real = getattr(owner, name)

        def timed(*arguments: Any, **more: Any) -> Any:
            self.enter(stage)
            try:
                return real(*arguments, **more)
            finally:
                self.enter(after)

        setattr(owner, name, timed)
        try:
            yield
        finally:
            setattr(owner, name, real)

    def statement(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(*arguments)
        finally:
            self.parts[self.stage]["sql_ms"] += (time.perf_counter() - began) * 1000
            self.parts[self.stage]["statements"] += 1


def _run(nodes: list[str], warm_up: int) -> dict[str, dict[str, float]]:
    import django  # noqa: PLC0415 - this process only

    django.setup()
    from django.db import connection  # noqa: PLC0415
    from django.utils import timezone  # noqa: PLC0415

    from kcover_portal.api.agent import report_decoder  # noqa: PLC0415
    from kcover_portal.fleet.models import Cluster  # noqa: PLC0415
    from kcover_portal.incidents import services as incidents  # noqa: PLC0415
    from kcover_portal.incidents.models import Incident  # noqa: PLC0415
    from kcover_portal.kube.live import LiveCluster  # noqa: PLC0415
    from kcover_portal.rescue import services as rescue  # noqa: PLC0415
    from kcover_portal.rescue.step.context import Context  # noqa: PLC0415

    cluster = Cluster.objects.get(name="sim")
    boots = dict(cluster.nodes.values_list("name", "boot_id"))
    found = []
    for node in nodes:
        # An agent has reported before it reports a fault.
        first = report_decoder.read(cluster, scene.report(node, [], boot_id=boots[node]), now=timezone.now())
        incidents.ingest([first], now=timezone.now())
        clock = _Clock()
        body = scene.report(node, [scene.xid(62)], boot_id=boots[node])
        with (
            connection.execute_wrapper(clock.statement),
            clock.around(LiveCluster, "apply_node", "cordon", "after PATCH"),
            clock.around(Context, "write", "before PATCH", "after PATCH"),
        ):
            clock.enter("decode")
            incoming = report_decoder.read(cluster, body, now=timezone.now())
            clock.enter("ingest")
            incidents.ingest([incoming], now=timezone.now())
            clock.enter("")
            due = Incident.objects.filter(node__name=node, state="open").values_list("pk", flat=True)[0]
            clock.enter("decide")
            rescue.decide_and_run([due], clock=timezone.now)
            clock.enter("")
        found.append(clock.parts)
    counted = found[warm_up:]
    return {
        stage: {
            what: statistics.median(parts[stage][what] for parts in counted) for what in ("ms", "sql_ms", "statements")
        }
        for stage, _ in STAGES
    }


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kcover_portal.settings")
    print(json.dumps(_run(*json.loads(sys.argv[1]))))
