"""Autopilot's ``/status`` end to end: the portal requests checks, and real agents run them."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.story import ring
from tests.story.product import ROOT, Product, call

CHECKS = "pciebw,remapped,ping"
RING = ["cpu-01", "cpu-02", "cpu-03"]  # nodes of the cluster on which the simulator runs no agent


def test_checks_are_requested_and_answered_by_the_agents(product: Product) -> None:
    product.set_up(nodes=6, simulator=("--cpu-nodes", str(len(RING))))
    nodes = sorted(one["name"] for one in product.get("/api/v1/nodes")["results"] if one["gpus"])
    with ring.agents(product, RING):
        heard = (*nodes, *RING)
        product.wait(
            lambda: all(product.get(f"/api/v1/nodes/sim/{name}")["agent"] for name in heard), "every agent's word"
        )
        by_virtual_agents(product, nodes)
        iperfs_ring(product)


def iperfs_ring(product: Product) -> None:
    """Asked by the portal step by step, measured by the agents' own check between processes, told as Autopilot does."""
    query = f"check=iperf&host={','.join(RING)}&workload=ring&pclients=2&startport=5300&wait=120"
    status, text = call("GET", f"{product.url}/api/v1/status?{query}", token=product.token, timeout=180)
    assert status == 200, text
    table = text[text.index("Average Bandwidth") : text.index("Node Summary")].splitlines()
    assert [line.split() for line in table if line] == [
        ["Average", "Bandwidth", "Gb/s:", "44.00"],
        ["Network", "Throughput:"],
        ["src/dst", *RING],
        ["cpu-01", "N/A", "24", "26"],  # two clients, each 10 for the sender's number and 1 for the receiver's
        ["cpu-02", "42", "N/A", "46"],
        ["cpu-03", "62", "64", "N/A"],
    ]
    assert str({name: ["Ok"] for name in RING}).replace("], ", "],\n ") in text
    [run] = product.get("/api/v1/check-runs?node=cpu-01")["results"]
    assert (run["state"], run["done"], run["wrong"]) == ("finished", 3, 0)
    kept = product.get("/api/v1/checks?node=cpu-01&check=iperf")["results"]
    assert {one["value"] for one in kept if one["device"] != "server"} == {24.0, 26.0}


@contextmanager
def port_without_token(product: Product) -> Iterator[str]:
    """Autopilot's address: the process that an admin starts with a token. Yields its URL."""
    secret = product.folder / "status-token"
    secret.write_text(product.token)
    command = ("manage.py", "status_port", "--portal", product.url, "--token-file", str(secret), "--port", "0")
    with subprocess.Popen(
        (sys.executable, *command), cwd=ROOT, env=product.environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().partition("/status")[0]
        finally:
            process.terminate()
    assert process.returncode == 0


def by_virtual_agents(product: Product, nodes: list[str]) -> None:
    """The checks of GPUs, one of which is hurt."""
    hurt = nodes[1]
    product.post_sim("/sim/faults", {"node": hurt, "kind": "xid", "code": 62, "gpu": 0, "cure": "repair"})

    with port_without_token(product) as url:
        status, text = call("GET", f"{url}/status?check={CHECKS}&batch=2&wait=15")
        assert status == 200, text
        assert f"url(s): {url}/status?host={nodes[0]}&check={CHECKS}\n" in text
        status, alone = call("GET", f"{url}/pciebw?host={nodes[0]}&wait=15")
        assert (status, f"url(s): {url}/status?host={nodes[0]}&check=pciebw\n" in alone) == (200, True), alone
        assert call("GET", f"{url}/status?check=nonsense")[0] == 400
        assert call("GET", f"{url}/api/v1/nodes")[0] == 404
        assert call("GET", f"{url}/status", headers={"User-Agent": "Mozilla/5.0"})[0] == 403
    assert text.startswith("Checking status on all nodes\nRun 1 in cluster sim: pciebw, remapped, ping\n")
    blocks = dict(re.findall(r"^Node: (\S+)$.*?^Node Status: (.*?)$", text, re.MULTILINE | re.DOTALL))
    assert blocks == {name: "PCIE Failed, REMAPPED ROWS Failed" if name == hurt else "Ok" for name in nodes}
    assert f"'{hurt}': ['PCIE Failed', 'REMAPPED ROWS Failed']" in text
    assert re.search(r"^runtime: \d+\.\d+ sec$", text, re.MULTILINE)

    _, run = product.get("/api/v1/check-runs")["results"]  # the newest first
    assert (run["state"], run["done"], run["wrong"], run["batch"]) == ("finished", len(nodes), 1, 2)

    _, asked = call(
        "GET",
        f"{product.url}/api/v1/status?host={hurt},{nodes[0]}&check=pvc,dcgm&r=1",
        token=product.token,
        headers={"Accept": "application/json"},
    )
    assert asked["summary"] == {nodes[0]: ["Ok"], hurt: ["DCGM Failed"]}
    query = f"check=iperf&plane=data&host={','.join(nodes[2:4])}&wait=120"
    _, ring = call("GET", f"{product.url}/api/v1/status?{query}", token=product.token, timeout=180)
    tables = [line for line in ring.splitlines() if line.endswith("Average Bandwidth Gb/s: 94.20")]
    assert [line.split()[0] for line in tables] == ["net1", "net2"], ring
    assert [one["checks"][0]["status"] for one in asked["nodes"]] == ["pass", "pass"]  # the claim was bound
    claims = product.sim_calls(resource="persistentvolumeclaims")["calls"]
    assert {one["verb"] for one in claims} == {"create", "get", "delete"}
    kept = product.get(f"/api/v1/checks?node={hurt}&check=pciebw&status=fail")["results"]
    assert [one["value"] for one in kept] == [1.9]
    _, metrics = call("GET", f"{product.url}/metrics")
    assert re.search(rf'^autopilot_health_checks{{health="pciebw",node="{hurt}",.*}} 1\.9$', metrics, re.MULTILINE)
    counted = re.compile(r'^kcover_ingest_reports_total{end="kept"} [1-9]', re.MULTILINE)
    product.wait(lambda: counted.search(call("GET", f"{product.url}/metrics")[1]), "the door to note what came in")
