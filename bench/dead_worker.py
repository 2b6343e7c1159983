"""kill -9 of a worker during its calls: how soon another worker claims its steps after the leases expire."""

import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path

from bench import scene
from bench.result import Result, scaled, spread
from tests.story import product as products

NODES = 6  # fewer than the threads of a worker: all are in a call when it dies
POLL_SECONDS = 0.01
HELD = "SELECT id, token, lease_until FROM rescue_rescue WHERE lease_until IS NOT NULL ORDER BY id"
SOONER = """UPDATE rescue_rescue SET lease_until = now() + (lease_until - now()) * %s
    WHERE lease_until IS NOT NULL RETURNING id"""
CLAIMED = "SELECT id, token, clock_timestamp() FROM rescue_rescue ORDER BY id"


def measure(scale: float) -> Result:
    """Every call to cordon hangs and the worker is killed; measures when tokens of another worker appear."""
    count = scaled(NODES, scale, least=2)
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(nodes=count + 4, policies=scene.CORDON, agents=False, simulator=["--no-workloads"])
        nodes = scene.working_nodes(product)[:count]
        secrets, boots = scene.tokens(product, nodes), scene.boots(product)
        watch = scene.Watch(product, "/api/v1/nodes", scene.cordoned)
        product.post_sim("/sim/api-faults", {"status": "timeout", "match": "PATCH /api/v1/nodes/", "count": count})
        faults = [scene.xid(62)]
        scene.send(product, [(secrets[node], scene.report(node, faults, boot_id=boots[node])) for node in nodes])
        product.wait(lambda: _hanging(product, count), "all steps to be in a call")
        product.kill("worker")
        killed = time.time()
        product.start("worker")
        if scale < 1:  # a try does not wait for whole leases
            scene.ask(product, SOONER, scale)
        held = {rescue: (token, until) for rescue, token, until in scene.ask(product, HELD)}
        late = _claim_delays(product, held)
        done = watch.wait(nodes, seconds=120)
    return Result(
        name="Dead worker",
        command="make bench ARGS=dead-worker",
        conditions=f"{count} rescues of one worker, each during a PATCH that does not return; kill -9, then "
        f"another worker is started at once. The clock runs from the end of each rescue's lease ({30 * scale:.0f} s "
        "after its last renewal) to the claim by the other worker.",
        rows=[
            *((f"claim after the lease, {what}", figure, "< 1 s" * (what == "max")) for what, figure in _s(late)),
            ("kill to node cordoned, P50", f"{statistics.median(done.values()) - killed:.1f} s", ""),
        ],
    )


def _s(seconds: list[float]) -> list[tuple[str, str]]:
    return spread(seconds, unit="s", digits=2)


def _hanging(product: products.Product, count: int) -> bool:
    """Return whether every injected API fault has blocked a call."""
    _, planned = products.call("GET", product.sim + "/sim/api-faults")
    return not planned["pending"] and len(scene.ask(product, HELD)) == count


def _claim_delays(product: products.Product, held: dict[int, tuple[int, datetime]]) -> list[float]:
    """Seconds from the end of each lease until its rescue had a newer token."""
    late: dict[int, float] = {}
    deadline = time.time() + 120
    while len(late) < len(held):
        if time.time() > deadline:
            raise RuntimeError(f"{len(held) - len(late)} rescues were not claimed within two minutes")
        for rescue, token, now in scene.ask(product, CLAIMED):
            if rescue in held and rescue not in late and token > held[rescue][0]:
                late[rescue] = (now - held[rescue][1]).total_seconds()
        time.sleep(POLL_SECONDS)
    return list(late.values())
