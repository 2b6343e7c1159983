"""Nodes that return on probation, against the simulator and real agents."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.story import conftest, turns
from tests.story.product import Product

NODE = "gpu-0001"
TAINT = {"key": "kcover.io/probation", "effect": "NoSchedule"}
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: returns}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      probation: auto
      actions:
        - name: cordon
        - {name: drain, attribute: {waittime: 1min}}
        - {name: reboot, attribute: {unCordon: "true"}}
"""


@pytest.fixture(params=turns.PLACES)
def product(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with conftest.place(request.param, tmp_path_factory) as made:
        made.set_up(policies=POLICY)
        yield made


def taints(product: Product) -> list[dict[str, Any]]:
    """The taints of the node, without the empty values that the API server may leave out."""
    found = product.sim_node(NODE)["spec"].get("taints", [])
    return [{key: value for key, value in taint.items() if value and key != "timeAdded"} for taint in found]


def test_a_node_on_probation_fails_again_and_opens_a_repair(product: Product) -> None:
    product.inject(NODE, 62)
    first = product.wait_rescue(NODE, "succeeded")

    node = product.sim_node(NODE)
    assert (first["outcome"], node["spec"].get("unschedulable", False)) == ("healed", False)
    assert taints(product) == [TAINT]
    assert (node["metadata"]["labels"]["kcover.io/state"], first["on_probation"]) == ("probation", False)
    product.wait(lambda: product.get(f"/api/v1/nodes/sim/{NODE}")["stage"] == "probation", "the watch to show it")
    shown = product.get(f"/api/v1/nodes/sim/{NODE}/probation")
    assert (shown["rescue"], shown["because_reason"]["code"]) == (first["id"], "probation_by_chance")
    assert product.get("/api/v1/repairs")["results"] == []

    product.inject(NODE, 62)
    second = product.wait_rescue(NODE, "succeeded", after=first["id"])
    assert second["on_probation"] is True

    def repair() -> Any:
        found = product.get("/api/v1/repairs")["results"]
        return next((one for one in found if one["machine"]["node"] == NODE), None)

    opened = product.wait(repair, "the repair")
    assert (opened["rescue"], [one["code"] for one in opened["opened_because_reasons"]]) == (
        second["id"],
        ["repair_on_probation"],
    )
    assert taints(product) == [TAINT]
    assert product.get(f"/api/v1/nodes/sim/{NODE}/probation")["rescue"] == second["id"]

    status, _ = product.post(f"/api/v1/nodes/sim/{NODE}/probation/end", {"reason": "a new board"})
    assert status == 202
    path = f"/api/v1/nodes/sim/{NODE}"
    product.wait(lambda: product.get(path)["probation_until"] is None, "the end of the probation")
    assert (taints(product), "kcover.io/state" in product.sim_node(NODE)["metadata"]["labels"]) == ([], False)
    product.wait(lambda: product.get(path)["stage"] == "healthy", "the watch to show it")
