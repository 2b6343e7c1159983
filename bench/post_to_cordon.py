"""From the POST of an agent to the node unschedulable on the API server."""

import contextlib
import http.client
import tempfile
import time
from pathlib import Path

from bench import scene
from bench.result import Result, scaled, spread
from tests.story import product as products

FAULTS = 50
INTERVAL_SECONDS = 2.0
MIN_INTERVAL_SECONDS = 0.5
SETTLE_SECONDS = 0.3  # between the first report of a node and its fault


def measure(scale: float) -> Result:
    """0.5 faults per second, each on another node, one cordon-only rule, PostgreSQL and Redis."""
    count, interval = scaled(FAULTS, scale, least=2), scaled(INTERVAL_SECONDS, scale, least=MIN_INTERVAL_SECONDS)
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(nodes=count + 10, policies=scene.CORDON, agents=False)
        latencies, acknowledged = _run(product, count, interval)
    ms = spread(latencies)
    goals = {"P50": "≤ 25 ms", "P99": "≤ 150 ms"}
    return Result(
        name="POST to cordon",
        command="make bench ARGS=post-to-cordon",
        conditions=f"{count} faults at {1 / interval:.1f}/s, one node each; live, worker, beat, watch and the "
        "simulated API server as processes of one machine with two cores. The clock runs from before the POST is sent "
        "to the arrival of the watch event that shows the node unschedulable.",
        rows=[
            *((f"POST to unschedulable, {what}", figure, goals.get(what, "")) for what, figure in ms),
            *((f"POST to durable answer, {what}", figure, "") for what, figure in spread(acknowledged)),
        ],
    )


def _run(product: products.Product, count: int, interval: float) -> tuple[list[float], list[float]]:
    """Milliseconds to unschedulable, and to the durable answer."""
    nodes = scene.working_nodes(product)[:count]
    secrets, boots = scene.tokens(product, nodes), scene.boots(product)
    watch = scene.Watch(product, "/api/v1/nodes", scene.cordoned)
    latencies, acknowledged = [], []
    for node in nodes:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", product.port)) as connection:
            # The portal knows the agent before it reports a fault.
            _post(connection, secrets[node], scene.report(node, [], boot_id=boots[node]))
            time.sleep(SETTLE_SECONDS)
            began = time.time()
            _post(connection, secrets[node], scene.report(node, [scene.xid(62)], boot_id=boots[node]))
            acknowledged.append((time.time() - began) * 1000)
            latencies.append((watch.wait([node], seconds=60)[node] - began) * 1000)
        time.sleep(max(0.0, interval - (time.time() - began)))
    return latencies, acknowledged


def _post(connection: http.client.HTTPConnection, token: str, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", "/api/v1/agent/reports", body, headers)
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 202:
        raise RuntimeError(f"{answer.status} {text!r}")
