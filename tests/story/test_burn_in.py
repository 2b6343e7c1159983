"""New and replaced machines before their first work, against the simulator and real agents."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.story import conftest, turns
from tests.story.product import Product, call

TAINT = {"key": "kcover.io/not-ready", "effect": "NoSchedule"}
JOINS, BROKEN, REPLACED = "gpu-0001", "gpu-0002", "gpu-0003"
UUID = "5f3b1e4c-1234-4000-8000-00000000abcd"


@pytest.fixture(scope="module", params=turns.PLACES)
def product(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with conftest.place(request.param, tmp_path_factory) as made:
        made.set_up(nodes=24, simulator=["--no-workloads"])  # the portal taints a quarter of a pool
        made.manage("cluster", "set", "sim", "burn_in=new")
        for node in (JOINS, BROKEN, REPLACED):  # a burn-in that finds no report looks again in half a minute
            made.wait(lambda node=node: made.get(f"/api/v1/nodes/sim/{node}")["agent"], f"the agent of {node}")
        yield made


def patch(product: Product, path: str, body: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    status, answer = call("PATCH", product.sim + path, body, token=product.sim_token(), headers=headers)
    assert status == 200, answer


def registers(product: Product, node: str) -> None:
    """The kubelet registers with the taint."""
    patch(product, f"/api/v1/nodes/{node}", {"spec": {"taints": [TAINT]}})


def taints(product: Product, node: str) -> list[dict[str, Any]]:
    """Without the empty values that the API server may leave out."""
    found = product.sim_node(node)["spec"].get("taints", [])
    return [{key: value for key, value in taint.items() if value and key != "timeAdded"} for taint in found]


def steps(rescue: dict[str, Any]) -> list[str]:
    return [step["name"] for step in rescue["steps"]]


def profile_of(product: Product, rescue: dict[str, Any]) -> str:
    [step] = [step for step in rescue["steps"] if step["name"] == "validate"]
    return str(product.get(f"/api/v1/validations/{step['validation']}")["profile"])


def test_a_node_that_registers_with_the_taint_is_freed_after_it_passed(product: Product) -> None:
    registers(product, JOINS)
    rescue = product.wait_rescue(JOINS, "succeeded")
    assert (steps(rescue), profile_of(product, rescue)) == (["validate", "uncordon"], "burn-in")
    assert (taints(product, JOINS), "kcover.io/state" in product.sim_node(JOINS)["metadata"]["labels"]) == ([], False)
    path = f"/api/v1/nodes/sim/{JOINS}"
    product.wait(lambda: product.get(path)["not_ready_since"] is None, "the watch to show it")


def test_a_node_that_fails_keeps_the_taint_and_goes_to_repair(product: Product) -> None:
    product.inject(BROKEN, 74)  # no rule is about it; its checks fail
    registers(product, BROKEN)
    rescue = product.wait_rescue(BROKEN, "failed")
    assert (rescue["outcome"], taints(product, BROKEN)) == ("failed_validation", [TAINT])

    def repair() -> Any:
        found = product.get("/api/v1/repairs")["results"]
        return next((one for one in found if one["machine"]["node"] == BROKEN), None)

    assert product.wait(repair, "the repair")["rescue"] == rescue["id"]
    path = f"/api/v1/nodes/sim/{BROKEN}"
    product.wait(lambda: product.get(path)["stage"] == "burn-in", "the watch to show it")
    assert any(need["node"] == BROKEN for need in product.get("/api/v1/needs-person")["results"])


def test_a_replaced_machine_is_burnt_in(product: Product) -> None:
    assert taints(product, REPLACED) == []
    patch(product, f"/api/v1/nodes/{REPLACED}/status", {"status": {"nodeInfo": {"systemUUID": UUID}}})
    rescue = product.wait_rescue(REPLACED, "succeeded")
    assert (steps(rescue), rescue["outcome"]) == (["taint", "validate", "uncordon"], "done")
    assert taints(product, REPLACED) == []
