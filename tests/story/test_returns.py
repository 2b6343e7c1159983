"""Nodes that come back only after a validation, against the simulator and real agents."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.story import conftest, turns
from tests.story.product import Product

RETURNS = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: returns}
spec:
  rules:
    - priority: 10
      errorCode: ["48", "74"]
      validate: auto
      actions: [{name: cordon}, {name: drain, attribute: {waittime: 1min}}, {name: unCordon}]
"""
STEPS = ["cordon", "drain", "verify", "validate", "uncordon"]


@pytest.fixture(scope="module", params=turns.PLACES)
def product(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The product with one policy for both stories."""
    with conftest.place(request.param, tmp_path_factory) as made:
        made.set_up(policies=RETURNS)
        yield made


def validation_of(product: Product, rescue: dict[str, Any]) -> dict[str, Any]:
    """The validation that the rescue names."""
    [step] = [step for step in rescue["steps"] if step["name"] == "validate"]
    found: dict[str, Any] = product.get(f"/api/v1/validations/{step['validation']}")
    return found


def test_a_node_that_passes_comes_back_without_a_reboot(product: Product) -> None:
    node = "gpu-0001"
    before = product.sim_node(node)
    product.inject(node, 48, cure="self")

    rescue = product.wait_rescue(node, "succeeded")

    assert [step["name"] for step in rescue["steps"]] == STEPS
    assert (rescue["outcome"], rescue["verified"]) == ("healed", True)
    validation = validation_of(product, rescue)
    assert (validation["state"], validation["profile"], validation["nodes"][0]["node"]) == ("passed", "full", node)
    after = product.sim_node(node)
    assert not after["spec"].get("unschedulable")
    assert after["status"]["nodeInfo"]["bootID"] == before["status"]["nodeInfo"]["bootID"]
    assert "kcover.io/state" not in after["metadata"]["labels"]


def test_a_node_that_fails_stays_isolated_and_gets_a_repair(product: Product) -> None:
    node = "gpu-0002"
    product.inject(node, 74)

    rescue = product.wait_rescue(node, "failed")

    validation = validation_of(product, rescue)
    assert (rescue["outcome"], validation["state"]) == ("failed_validation", "failed")
    assert product.sim_node(node)["spec"]["unschedulable"] is True

    def repair() -> Any:
        found = product.get("/api/v1/repairs")["results"]
        return next((one for one in found if one["machine"]["node"] == node), None)

    opened = product.wait(repair, "the repair")
    assert opened["rescue"] == rescue["id"]
    [because] = [reason for reason in opened["opened_because_reasons"] if reason["code"] == "step_ended"]
    assert because["params"]["why"]["params"]["validation"] == str(validation["id"])
