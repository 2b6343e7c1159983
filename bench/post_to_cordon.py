"""From the POST of an agent to the node unschedulable on the API server."""

import http.client
import json
import tempfile
import threading
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from bench.result import Result, spread
from tests.story import product as products

FAULTS = 50
INTERVAL_SECONDS = 2.0
FAULT: dict[str, object] = {"kind": "xid", "code": 62, "pci": "0000:4e:00", "message": "bench", "source": "kmsg"}
CORDON = """
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata: {name: cordon}
spec: {rules: [{priority: 10, errorCode: ["62"], actions: [{name: cordon}]}]}
"""


def measure() -> Result:
    """0.5 faults per second, each on another node, one cordon-only rule, PostgreSQL and Redis."""
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(nodes=FAULTS + 10, policies=CORDON, agents=False)
        latencies, acknowledged = _run(product)
    ms = spread(latencies)
    goals = {"P50": "≤ 25 ms", "P99": "≤ 150 ms"}
    return Result(
        name="POST to cordon",
        command="make bench ARGS=post-to-cordon",
        conditions=f"{FAULTS} faults at {1 / INTERVAL_SECONDS:.1f}/s, one node each; live, worker, beat, watch and the "
        "simulated API server as processes of one machine with two cores. The clock runs from before the POST is sent "
        "to the arrival of the watch event that shows the node unschedulable.",
        rows=[
            *((f"POST to unschedulable, {what}", figure, goals.get(what, "")) for what, figure in ms),
            *((f"POST to durable answer, {what}", figure, "") for what, figure in spread(acknowledged)),
        ],
    )


def _run(product: products.Product) -> tuple[list[float], list[float]]:
    rows = product.get("/api/v1/nodes?page_size=500")["results"]
    # Spares are cordoned from the start. Only a schedulable node can be seen to become unschedulable.
    nodes = sorted(row["name"] for row in rows if row["gpus"] and not row["cordoned"])[:FAULTS]
    boots = {row["name"]: row["boot_id"] for row in rows}
    listing = Path(product.folder) / "nodes"
    listing.write_text("\n".join(nodes))
    printed = product.manage("token", "create", "--kind", "agent", "--cluster", "sim", "--nodes", str(listing))
    tokens = dict(line.split("\t") for line in printed.splitlines() if "\t" in line)
    seen = _Watch(product)
    connection = http.client.HTTPConnection("127.0.0.1", product.port)
    latencies, acknowledged = [], []
    for node in nodes:
        _post(
            connection, node, tokens[node], boots[node], faults=[]
        )  # the portal knows the agent before it reports a fault
        time.sleep(0.3)
        began = time.monotonic()
        _post(connection, node, tokens[node], boots[node], faults=[FAULT])
        acknowledged.append((time.monotonic() - began) * 1000)
        latencies.append((seen.cordoned(node) - began) * 1000)
        time.sleep(max(0.0, INTERVAL_SECONDS - (time.monotonic() - began)))
    return latencies, acknowledged


def _post(
    connection: http.client.HTTPConnection, node: str, token: str, boot_id: str, *, faults: list[dict[str, object]]
) -> None:
    now = datetime.now(UTC).isoformat()
    report = {
        "version": 1,
        "node": node,
        "boot_id": boot_id,
        "batch_id": str(uuid.uuid4()),
        "agent": "bench",
        "sent_at": now,
        "faults": faults,
        "checks": [],
    }
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", "/api/v1/agent/reports", json.dumps(report), headers)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 202:
        raise RuntimeError(f"{node}: {answer.status} {body!r}")


class _Watch:
    """Records when the API server first shows each node unschedulable."""

    def __init__(self, product: products.Product) -> None:
        self._at: dict[str, float] = {}
        self._new = threading.Condition()
        address = urlsplit(product.sim)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port)
        token = product.sim_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection.request("GET", "/api/v1/nodes?watch=true", headers=headers)
        self._stream = self._connection.getresponse()
        threading.Thread(target=self._read, daemon=True).start()

    def cordoned(self, node: str) -> float:
        """Waits until the node is cordoned; returns the time by the monotonic clock."""
        with self._new:
            if not self._new.wait_for(lambda: node in self._at, timeout=60):
                raise RuntimeError(f"{node} was not cordoned within a minute")
            return self._at[node]

    def _read(self) -> None:
        for line in self._stream:
            at = time.monotonic()
            event = json.loads(line)
            if event["object"].get("spec", {}).get("unschedulable"):
                with self._new:
                    self._at.setdefault(event["object"]["metadata"]["name"], at)
                    self._new.notify_all()
