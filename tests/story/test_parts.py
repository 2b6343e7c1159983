"""A GPU that was taken out as broken comes back in another node, and is recognized. With the simulator."""

from typing import Any

from tests.story.product import Product

WHY = {"reason": "Xid 79 after two reboots"}


def flagged(product: Product, serial: str) -> dict[str, Any] | None:
    """The part, once its newest placement is flagged."""
    found: list[dict[str, Any]] = product.get(f"/api/v1/parts?serial={serial}")["results"]
    return next((one for one in found if one["placements"][0]["flags"]), None)


def test_a_returned_board_is_recognized_under_another_node_name(product: Product) -> None:
    product.set_up(nodes=3)
    bad, other = "gpu-0001", "gpu-0002"

    def placed() -> Any:
        rows = product.get(f"/api/v1/placements?node={bad}&kind=gpu&present=true")["results"]
        return rows if len(rows) == 8 else None

    serial = next(row["serial"] for row in product.wait(placed, "the placements") if row["slot"] == "0000:18:00")
    part = {"kind": "gpu", "serial": serial, "slot": "0"}
    repair = product.post("/api/v1/repairs", {"machine": {"cluster": "sim", "node": bad}, "part": part, **WHY})[1]["id"]
    for verb in ("accept", "hand-over"):
        product.post(f"/api/v1/repairs/{repair}/{verb}", WHY)
    moved = product.post_sim(f"/sim/nodes/{bad}/gpus/0/move", {"to": other, "slot": 3})
    assert moved["serial"] == serial
    product.post(f"/api/v1/repairs/{repair}/return", {**WHY, "part": {"serial": "new"}})
    for node in (bad, other):  # the first machine first, as people do it
        for running in (False, True):
            product.post_sim(f"/sim/nodes/{node}/agent", {"running": running})

    found = product.wait(lambda: flagged(product, serial), "the flag")

    assert [(row["node"], row["to"] is None) for row in found["placements"]] == [(other, True), (bad, False)]
    assert [row["code"] for row in found["placements"][0]["flag_reasons"]] == ["part_removed_by_repair"]
    assert [row["id"] for row in found["repairs"]] == [repair]
    assert product.get("/api/v1/needs-person")["counts"]["part"] == 1
