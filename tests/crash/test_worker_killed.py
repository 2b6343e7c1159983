"""kill -9 of the worker in mid-step: the rescue still ends well, and nothing is done twice (invariant 13)."""

from tests.story.product import Product
from tests.story.test_walkthroughs import HEAL

NODE = "gpu-0001"


def test_inv_13_killed_in_mid_drain(product: Product) -> None:
    product.set_up(policies=HEAL, boot_seconds=1)
    product.post_sim("/sim/api-faults", {"status": 429, "match": "POST .*/eviction", "count": 3})
    product.inject(NODE, 62)
    product.wait(lambda: step_state(product, "drain") in ("running", "waiting"), "the drain to begin")

    product.kill("worker")
    product.start("worker")

    assert_healed_once(product)


def test_inv_13_killed_in_mid_reboot(product: Product) -> None:
    product.set_up(policies=HEAL, boot_seconds=4)
    product.inject(NODE, 62)
    product.wait(lambda: step_state(product, "reboot") in ("running", "waiting"), "the reboot to begin")

    product.kill("worker")
    product.start("worker")

    assert_healed_once(product)


def test_inv_14_the_broker_forgets_everything(product: Product) -> None:
    product.set_up(policies=HEAL, boot_seconds=1)
    product.kill("worker")
    product.inject(NODE, 62)
    product.wait(lambda: product.get(f"/api/v1/incidents?node={NODE}")["results"], "the incident")
    product.flush_redis()
    product.start("worker")

    assert_healed_once(product)


def step_state(product: Product, name: str) -> str:
    """The state of a step of the node's newest rescue; empty before there is one."""
    rescue = product.rescue_of(NODE)
    return next((step["state"] for step in rescue["steps"] if step["name"] == name), "") if rescue else ""


def assert_healed_once(product: Product) -> None:
    """One rescue, healed; one boot; no pod evicted twice."""
    rescue = product.wait_rescue(NODE, "succeeded", "failed", "held", "cancelled", seconds=100)
    assert (rescue["state"], rescue["outcome"]) == ("succeeded", "healed"), rescue
    assert len(product.get(f"/api/v1/rescues?node={NODE}")["results"]) == 1
    truth = product.sim_truth(NODE)
    assert [boot["cause"] for boot in truth["boots"]] == ["power on", "agent command"]
    evictions: dict[str, int] = {}
    for entry in product.get(f"/api/v1/audit?node={NODE}&verb=evict.done&page_size=200")["results"]:
        if "Evicted" in str(entry["data"].get("answer")):
            evictions[entry["subject"]] = evictions.get(entry["subject"], 0) + 1
    assert evictions
    assert set(evictions.values()) == {1}
