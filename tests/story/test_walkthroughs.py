"""The walk-throughs of KCE's help page and of Konduktor's documentation, from the log line to the node.

They share one installation; each has its own node and fault code.
"""

from collections.abc import Iterator

import pytest

from tests.story import conftest, turns
from tests.story.product import Product, call

KCE = """
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata:
  name: test-1
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - name: cordon
"""

KONDUKTOR = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata:
  name: konduktor
spec:
  rules:
    - priority: 10
      errorCode: ["79"]
      actions:
        - name: taint
          attribute: {key: trainy.konduktor.ai/faulty, value: "true", effect: NoSchedule}
"""

HEAL = """
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata:
  name: heal
spec:
  rules:
    - priority: 5
      errorCode: ["48", "62", "64"]
      actions:
        - name: cordon
        - name: drain
          attribute: {waittime: "20min"}
        - name: reboot
          attribute: {unCordon: "true"}
"""


@pytest.fixture(scope="module", params=turns.PLACES)
def product(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The product with the policies of all walk-throughs."""
    with conftest.place(request.param, tmp_path_factory) as made:
        made.set_up(policies="---".join((KCE, KONDUKTOR, HEAL)))
        yield made


def test_kce_xid_62_becomes_an_event_and_the_node_is_cordoned(product: Product) -> None:
    node = "gpu-0001"
    product.inject(node, 62, line="NVRM: Xid (0000:03:00): 62, Channel 00000001")

    rescue = product.wait_rescue(node, "succeeded")

    assert rescue["outcome"] == "isolated"
    assert [step["name"] for step in rescue["steps"]] == ["cordon"]
    assert product.sim_node(node)["spec"]["unschedulable"] is True
    event = product.wait(lambda: events(product, "XidError"), "the Event XidError")[0]
    assert event["involvedObject"]["kind"] == "Node"
    assert event["involvedObject"]["name"] == node
    assert event["metadata"]["namespace"] == "kce-rescue-system"
    assert event["message"] == "GPU Xid error, pci:0000:03:00, xid:62, log: Channel 00000001"
    assert event["reportingComponent"] == "kcover-portal"


def test_konduktor_xid_79_taints_and_release_takes_the_taint_off(product: Product) -> None:
    node = "gpu-0002"
    line = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    product.inject(node, 79, line=line)

    product.wait_rescue(node, "succeeded")
    taint = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
    assert taint in product.sim_node(node)["spec"]["taints"]
    assert not product.sim_node(node)["spec"].get("unschedulable")

    product.manage("release", node)

    def released() -> bool:
        seen = product.sim_node(node)
        return taint not in seen["spec"].get("taints", []) and "kcover.io/rescue" not in seen["metadata"]["annotations"]

    product.wait(released, "the taint to go")
    newest = f"/api/v1/incidents?node={node}"
    product.wait(lambda: product.get(newest)["results"][0]["state"] == "closed", "the incident to be closed")


def test_a_fault_heals_and_everything_is_on_record(product: Product) -> None:
    node = "gpu-0003"
    before = product.sim_node(node)["status"]["nodeInfo"]["bootID"]

    product.inject(node, 48)
    rescue = product.wait_rescue(node, "succeeded")

    assert (rescue["outcome"], rescue["verified"]) == ("healed", True)
    assert [step["name"] for step in rescue["steps"]] == ["cordon", "drain", "reboot", "ready", "verify", "uncordon"]
    assert {step["state"] for step in rescue["steps"]} == {"done"}
    seen = product.sim_node(node)
    assert not seen["spec"].get("unschedulable")
    assert seen["status"]["nodeInfo"]["bootID"] != before
    assert "kcover.io/rescue" not in seen["metadata"].get("annotations", {})
    assert "kcover.io/state" not in seen["metadata"]["labels"]
    incident = product.get(f"/api/v1/incidents?node={node}")["results"][0]
    assert (incident["kind"], incident["code"], incident["state"]) == ("xid", 48, "closed")
    decision = product.get(f"/api/v1/decisions?node={node}&answer=rescue")["results"][0]
    assert decision["rule"] == "heal#1"
    assert decision["because"][0] == "Rule heal#1 (priority 5) matches Xid 48."
    assert "intact" in product.manage("ledger", "verify", "--cluster", "sim")


def test_a_program_fault_is_recorded_and_nothing_is_done(product: Product) -> None:
    node = "gpu-0004"
    before = product.sim_node(node)["spec"]
    product.inject(node, 31)

    def judged() -> list[dict]:
        return product.get(f"/api/v1/decisions?node={node}")["results"]

    decision = product.wait(judged, "a decision")[0]
    assert decision["answer"] == "none"
    assert product.get(f"/api/v1/rescues?node={node}")["results"] == []
    assert product.sim_node(node)["spec"] == before


def events(product: Product, reason: str) -> list[dict]:
    """Events of a reason, in all namespaces."""
    _, found = call("GET", f"{product.sim}/api/v1/events", token=product.sim_token())
    return [event for event in found["items"] if event["reason"] == reason]
