"""The time that the portal adds to the termination of pods and the boot of machines."""

import tempfile
import time
from datetime import datetime
from pathlib import Path

from bench import scene
from bench.result import Result, scaled, spread
from tests.story import product as products

NODES = 30
INTERVAL_SECONDS = 1.0
BOOT_SECONDS = 5.0
HEAL = """
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata: {name: heal}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - name: cordon
        - {name: drain, attribute: {waittime: 10min}}
        - {name: reboot, attribute: {unCordon: "true"}}
"""


def measure(scale: float) -> Result:
    """One rescue per second, each with drain and reboot; watches of the API server give the times."""
    count, interval = scaled(NODES, scale, least=2), INTERVAL_SECONDS * scale
    boot = scaled(BOOT_SECONDS, scale, least=1.0)
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.set_up(nodes=count + count // 4 + 4, policies=HEAL, boot_seconds=boot)
        product.wait(lambda: len(scene.working_nodes(product)) >= count, "the nodes to be listed")
        nodes = scene.working_nodes(product)[:count]
        reporting = "SELECT count(*) FROM fleet_agent"
        product.wait(lambda: scene.ask(product, reporting)[0][0] >= count, "the agents to report", seconds=120)
        left = scene.Watch(product, "/api/v1/pods", _left)
        back = scene.Watch(product, "/api/v1/nodes", _ready)
        for node in nodes:
            product.inject(node, 62)
            time.sleep(interval)
        for node in nodes:
            product.wait_rescue(node, "succeeded", seconds=180)
        drains = _drains(product, nodes, left.noted())
        reboots = _after_ready(product, nodes, back.noted(), step="reboot")
        readies = _after_ready(product, nodes, back.noted(), step="ready")
    return Result(
        name="Drain and reboot overhead",
        command="make bench ARGS=drain-reboot-overhead",
        conditions=f"{count} rescues, one started every {interval:.1g} s: cordon, drain, reboot by the agent "
        f"(machines boot in {boot:.0f} s), verify, uncordon. Drain: from the watch event that shows the node's "
        f"last pod ended ({len(drains)} nodes had pods) to the end of the step. Reboot: from the event that shows the "
        "node Ready with a new boot ID to the end of the steps `reboot` (which may settle before the node is Ready) "
        "and `ready`.",
        rows=[
            *((f"drain after the last pod, {what}", figure, "≤ 1 s" * (what == "max")) for what, figure in _s(drains)),
            *((f"reboot after Ready, {what}", figure, "≤ 2 s" * (what == "max")) for what, figure in _s(reboots)),
            *((f"ready after Ready, {what}", figure, "≤ 2 s" * (what == "max")) for what, figure in _s(readies)),
        ],
    )


def _s(seconds: list[float]) -> list[tuple[str, str]]:
    return spread(seconds, unit="s", digits=2) if seconds else [("none", "no node had pods")]


def _left(event: scene.Json) -> tuple[str, str] | None:
    """For ``Watch``: node and name of a pod that has ended. Pods of DaemonSets stay on a drained node."""
    pod = event["object"]
    owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences") or ()}
    ended = event["type"] == "DELETED" or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    node = pod.get("spec", {}).get("nodeName")
    return (node, pod["metadata"]["name"]) if node and ended and "DaemonSet" not in owners else None


def _ready(event: scene.Json) -> tuple[str, str] | None:
    """For ``Watch``: name and boot id of a Ready node."""
    node = event["object"]
    status = node.get("status") or {}
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in status.get("conditions", ())
    )
    return (node["metadata"]["name"], status["nodeInfo"]["bootID"]) if ready else None


def _finished(product: products.Product, node: str, step: str) -> float:
    query = """SELECT s.finished_at FROM rescue_step s JOIN rescue_rescue r ON r.id = s.rescue_id
        JOIN fleet_node n ON n.id = r.node_id WHERE n.name = %s AND s.name = %s"""
    [(at,)] = scene.ask(product, query, node, step)
    assert isinstance(at, datetime)
    return at.timestamp()


def _drains(product: products.Product, nodes: list[str], left: dict[scene.Key, float]) -> list[float]:
    """Seconds from the end of each node's last pod to the end of its drain; nodes without pods are omitted."""
    found = []
    for node in nodes:
        drained = _finished(product, node, "drain")
        ended = [at for (of, _), at in left.items() if of == node and at <= drained]
        if ended:
            found.append(drained - max(ended))
    return found


def _after_ready(
    product: products.Product, nodes: list[str], back: dict[scene.Key, float], *, step: str
) -> list[float]:
    """Seconds from each node's second Ready (the first is the boot before the measurement) to the end of the step."""
    found = []
    for node in nodes:
        ready = sorted(at for (of, _), at in back.items() if of == node)
        found.append(_finished(product, node, step) - ready[1])
    return found
