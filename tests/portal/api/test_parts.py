"""``/parts`` and ``/placements``: the hardware passport, and the review of a flagged part."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from kcover_portal.fleet.models import CheckChange, Cluster, Node
from kcover_portal.ledger.models import Entry
from kcover_portal.parts.models import Part, Placement
from kcover_portal.repairs.models import Repair
from tests.portal.api.conftest import Api, add_node, caller, fields, problem
from tests.portal.parts.conftest import fault
from tests.portal.repairs.conftest import add_validation

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


@pytest.fixture
def moved(node: Node, west: Cluster) -> Part:
    """A GPU that failed in two nodes of two clusters, and is flagged in the second one."""
    now = timezone.now()
    part = Part.objects.create(kind="gpu", serial="G0", model="H100", first_seen_at=now - 9 * DAY)
    other = add_node(west, "gpu-9", now)
    kept = {"part": part, "slot": "0000:4e:00", "device": "GPU-G0"}
    first = {"cluster": node.cluster, "node": node, "node_name": node.name, "since": now - 9 * DAY}
    Placement.objects.create(until=now - 5 * DAY, **first, **kept)
    flag = {"code": "part_returned_with_faults", "params": {"serial": "G0", "count": 1, "days": 28}}
    there = {"cluster": west, "node": other, "node_name": "gpu-9", "since": now - 4 * DAY, "flags": [flag]}
    Placement.objects.create(flagged_at=now - 4 * DAY, **there, **kept)
    fault(node, now - 6 * DAY, gpu="G0")
    fault(node, now - 4 * DAY, gpu="G0")  # of another part with its UUID: this one had left
    fault(other, now - DAY, gpu="G0")
    Repair.objects.create(
        cluster=node.cluster,
        node=node,
        node_name=node.name,
        part_kind="gpu",
        removed_serial="G0",
        opened_by="t",
        reported_at=now,
    )
    CheckChange.objects.create(node=node, name="remapped", device="GPU-G0", status="fail", at=now - 7 * DAY)
    CheckChange.objects.create(node=node, name="remapped", device="GPU-G1", status="fail", at=now - 7 * DAY)
    add_validation(other, at=now - 2 * DAY)
    return part


def test_the_passport_of_a_part(moved: Part, viewer: Api) -> None:
    (row,) = viewer.get("parts?serial=G0").json()["results"]
    assert (row["id"], row["kind"], row["serial"], row["model"]) == (moved.pk, "gpu", "G0", "H100")
    assert [(one["cluster"], one["node"], one["slot"], one["to"] is None) for one in row["placements"]] == [
        ("west", "gpu-9", "0000:4e:00", True),
        ("east", "gpu-1", "0000:4e:00", False),
    ]
    assert row["placements"][0]["from"]
    assert [one["code"] for one in row["placements"][0]["flag_reasons"]] == ["part_returned_with_faults"]
    assert [(one["node"], one["code"]) for one in row["faults"]] == [("gpu-9", "79"), ("gpu-1", "79")]
    assert [(one["node"], one["state"]) for one in row["repairs"]] == [("gpu-1", "reported")]
    assert [(one["name"], one["status"], one["node"]) for one in row["tests"]] == [
        ("light", "passed", "gpu-9"),
        ("remapped", "fail", "gpu-1"),
    ]
    assert row["tests"][0]["validation"]
    risk = row["risk"]
    assert (risk["faults"], risk["window_days"]) == (2, 28)
    assert 0 < risk["base"] < risk["probability"] < 1
    assert (risk["basis_reason"]["code"], row["follows"]["code"]) == ("risk_of_gpu", "fault_follows_part")
    assert viewer.get(f"parts/{moved.pk}").json()["faults"] == row["faults"]


def test_a_list_is_short(moved: Part, viewer: Api) -> None:
    (row,) = viewer.get("parts?kind=gpu&q=h100").json()["results"]
    assert (len(row["placements"]), row["faults"], row["repairs"], row["tests"], row["risk"]) == (2, *[None] * 4)
    assert viewer.ids("parts?kind=nic") == viewer.ids("parts?serial=unknown") == []
    assert "nonsense" in fields(viewer.get("parts?nonsense=1"))
    (place,) = viewer.get("placements?node=gpu-9&present=true&needs_person=true").json()["results"]
    assert (place["part"], place["serial"], place["doubt"], place["to"]) == (moved.pk, "G0", "", None)
    assert [row["node"] for row in viewer.get("placements?present=false").json()["results"]] == ["gpu-1"]


def test_parts_of_another_cluster_are_hidden(moved: Part, node: Node, west: Cluster, now: datetime) -> None:
    (row,) = caller("viewer", now, cluster=west).get("parts?serial=G0").json()["results"]
    assert [one["node"] for one in row["placements"]] == [one["node"] for one in row["faults"]] == ["gpu-9"]
    assert (row["repairs"], row["follows"], row["risk"]["faults"]) == ([], None, 1)
    Placement.objects.filter(cluster=west).delete()
    assert caller("viewer", now, cluster=west).ids("parts") == []
    problem(caller("viewer", now, cluster=west).get(f"parts/{moved.pk}"), 404)


def test_a_review_ends_the_need(moved: Part, operator: Api, viewer: Api, west: Cluster, now: datetime) -> None:
    old, flagged = Placement.objects.filter(part=moved).order_by("since")
    body = {"placement": flagged.pk, "reason": "tested, keep it"}
    assert viewer.get("needs-person").json()["counts"]["part"] == 1
    problem(viewer.post(f"parts/{moved.pk}/review", body), 403)
    problem(caller("operator", now, cluster=old.cluster).post(f"parts/{moved.pk}/review", body), 404)
    first = operator.post(f"parts/{moved.pk}/review", body, Idempotency_Key="k1")
    assert (first.status_code, first.json()["reviewed_by"][:6]) == (200, "token:")
    assert operator.post(f"parts/{moved.pk}/review", body, Idempotency_Key="k1").json() == first.json()
    assert viewer.get("needs-person").json()["counts"]["part"] == 0
    assert problem(operator.post(f"parts/{moved.pk}/review", body), 409)["code"] == "part_not_flagged"
    not_flagged = operator.post(f"parts/{moved.pk}/review", {**body, "placement": old.pk})
    assert problem(not_flagged, 409)["code"] == "part_not_flagged"
    problem(operator.post(f"parts/{moved.pk + 1}/review", body), 404)
    assert set(fields(operator.post(f"parts/{moved.pk}/review", {"placement": 0}))) == {"placement", "reason"}
    (entry,) = Entry.objects.filter(verb="part.reviewed")
    assert (entry.node, entry.data["reason"], entry.cluster) == ("gpu-9", "tested, keep it", "west")
