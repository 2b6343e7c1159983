"""Autopilot's ``/status`` from one end to the other: the portal asks, real agents over virtual GPUs answer."""

import re

from tests.story.product import Product, call

CHECKS = "pciebw,remapped,ping"


def test_checks_are_asked_for_and_answered_by_the_agents(product: Product) -> None:
    product.set_up(nodes=6)
    nodes = sorted(one["name"] for one in product.get("/api/v1/nodes")["results"] if one["gpus"])
    product.wait(lambda: all(product.get(f"/api/v1/nodes/sim/{name}")["agent"] for name in nodes), "every agent's word")
    hurt = nodes[1]
    product.post_sim("/sim/faults", {"node": hurt, "kind": "xid", "code": 62, "gpu": 0, "cure": "repair"})

    status, text = call("GET", f"{product.url}/api/v1/status?check={CHECKS}&batch=2&wait=15", token=product.token)
    assert status == 200, text
    assert text.startswith(f"Checking status of {len(nodes)} nodes in cluster sim: pciebw, remapped, ping\n")
    blocks = dict(re.findall(r"^Node: (\S+)$.*?^Node Status: (.*?)$", text, re.MULTILINE | re.DOTALL))
    assert blocks == {name: "PCIE Failed, REMAPPED ROWS Failed" if name == hurt else "Ok" for name in nodes}
    assert f"'{hurt}': ['PCIE Failed', 'REMAPPED ROWS Failed']" in text
    assert re.search(r"^runtime: \d+\.\d sec$", text, re.MULTILINE)

    [run] = product.get("/api/v1/check-runs")["results"]
    assert (run["state"], run["done"], run["wrong"], run["batch"]) == ("finished", len(nodes), 1, 2)

    _, asked = call(
        "GET",
        f"{product.url}/api/v1/status?host={hurt},{nodes[0]}&check=pvc,dcgm&r=1",
        token=product.token,
        headers={"Accept": "application/json"},
    )
    assert asked["summary"] == {nodes[0]: ["Ok"], hurt: ["DCGM Failed"]}
    assert [one["checks"][0]["status"] for one in asked["nodes"]] == ["pass", "pass"]  # the claim was bound
    claims = product.sim_calls(resource="persistentvolumeclaims")["calls"]
    assert {one["verb"] for one in claims} == {"create", "get", "delete"}
    kept = product.get(f"/api/v1/checks?node={hurt}&check=pciebw&status=fail")["results"]
    assert [one["value"] for one in kept] == [1.9]
    _, metrics = call("GET", f"{product.url}/metrics")
    assert re.search(rf'^autopilot_health_checks{{health="pciebw",node="{hurt}",.*}} 1\.9$', metrics, re.MULTILINE)
    counted = re.compile(r'^kcover_ingest_reports_total{end="kept"} [1-9]', re.MULTILINE)
    product.wait(lambda: counted.search(call("GET", f"{product.url}/metrics")[1]), "the door to note what came in")
