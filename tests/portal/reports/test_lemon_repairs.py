"""Repairs that the portal reports because a node fails repeatedly: for which nodes, how many, and on whose word."""

from datetime import datetime

import pytest
from django.utils import timezone

from kcover import actors
from kcover.repairs.repairs import Move, Part
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.ledger.models import Entry
from kcover_portal.repairs import services as repairs
from kcover_portal.repairs.models import Repair
from kcover_portal.reports import lemon_repairs
from kcover_portal.reports.tasks import report_lemons
from tests.portal.api.conftest import fields, person
from tests.portal.repairs.conftest import add_validation
from tests.portal.reports.test_doors import DAY, HOUR, healed, node

pytestmark = pytest.mark.django_db


@pytest.fixture
def east() -> Cluster:
    return Cluster.objects.create(name="east", created_at=timezone.now() - 400 * DAY, lemon_repairs=True)


def lemon(cluster: Cluster, name: str, *days: int) -> Node:
    """A node with a fault on each of these days before today; by default with four."""
    found = node(cluster, name)
    for day in days or (2, 5, 32, 45):
        healed(found, day * DAY)
    return found


def reported(now: datetime) -> list[tuple[str, str]]:
    return [(row.node_name, row.cluster.name) for row in lemon_repairs.report_lemons(now=now)]


def test_a_machine_with_four_faults_gets_one_repair_with_its_basis(east: Cluster) -> None:
    lemon(east, "gpu-1")
    lemon(east, "gpu-2", 2, 5, 45)  # three: a person decides
    off = Cluster.objects.create(name="west", created_at=east.created_at)
    lemon(off, "gpu-9")
    busy = lemon(east, "gpu-3")
    repairs.report(busy, part=Part(kind="nic"), actor="user:ann", reason="x", now=timezone.now())
    report_lemons()
    row = Repair.objects.get(opened_by=actors.SYSTEM)
    assert (row.node_name, row.part, row.state, row.opened_role) == ("gpu-1", Part(), "reported", "operator")
    assert [reason.code for reason in row.reasons] == ["repair_of_lemon", "risk_of_node"]
    assert dict(row.reasons[0].params) == {"faults": 4, "days": 56}
    entry = Entry.objects.get(verb="repair.reported", cluster="east", actor=actors.SYSTEM)
    assert [reason["code"] for reason in entry.data["because"]] == ["repair_of_lemon", "risk_of_node"]
    assert reported(timezone.now()) == []


def test_repaired_or_replaced_parts_do_not_count(east: Cluster) -> None:
    now = timezone.now()
    of = lemon(east, "gpu-1")
    (row,) = lemon_repairs.report_lemons(now=now)
    repairs.act(row, Move.REFUSE, actor="user:ann", reason="it is the rack", now=now)
    assert reported(now) == []  # a refused one is open
    add_validation(of, at=now + HOUR)
    repairs.act(row, Move.CLOSE, actor="user:ann", reason="proved", now=now + HOUR)
    healed(of, -HOUR * 5)  # one more fault, five in 56 days, one since the repair
    assert reported(now + DAY) == []
    for hours in (10, 15, 20):
        healed(of, -HOUR * hours)
    assert reported(now + DAY) == [("gpu-1", "east")]
    other = lemon(east, "gpu-2")
    Node.objects.filter(pk=other.pk).update(machine_since=now - 3 * DAY)
    assert reported(now + DAY) == []


def test_a_pass_is_bounded_and_waits_for_people(east: Cluster) -> None:
    now = timezone.now()
    for number in range(13):
        lemon(east, f"gpu-{number}")
    assert [len(reported(now)) for _ in range(3)] == [5, 5, 0]
    first = Repair.objects.order_by("pk")[0]
    repairs.act(first, Move.ACCEPT, actor="user:ann", reason="ours", now=now)
    repairs.report(Node.objects.get(name="gpu-12"), part=Part(kind="nic"), actor="user:ann", reason="x", now=now)
    assert len(reported(now)) == 1  # a person's own report takes no place


def test_the_page_and_rest_show_the_effect_of_the_setting(east: Cluster) -> None:
    Cluster.objects.update(lemon_repairs=False)
    lemon(east, "gpu-1")
    lemon(east, "gpu-2", 2, 5)
    now = timezone.now()
    assert person("vera", "viewer", now).client.get("/reports/lemons/east/").status_code == 403
    api = person("otto", "operator", now)
    page = api.client.get("/reports/").content.decode()
    assert "would report 1 repair" in " ".join(page.split())
    rows = api.get("reports/lemons").json()["results"]
    assert {row["node"]: (row["repair"], row["repair_due"]) for row in rows} == {
        "gpu-1": (None, True),
        "gpu-2": (None, False),
    }
    assert (
        "The portal reports at most 5 repairs an hour, and none while 10 of them are neither accepted nor refused."
        in api.client.get("/reports/lemons/east/").content.decode()
    )
    assert api.client.post("/reports/lemons/east/", {"lemon_repairs": "on", "reason": "try"}).status_code == 302
    entry = Entry.objects.get(verb="cluster.changed")
    assert (entry.actor, entry.data["changed"]["lemon_repairs"]) == ("user:otto", {"before": False, "after": True})
    assert reported(now) == [("gpu-1", "east")]
    rows = api.get("reports/lemons").json()["results"]
    assert (rows[0]["repair"], rows[0]["repair_due"]) == (Repair.objects.get().pk, False)
    assert f"/repairs/{Repair.objects.get().pk}/" in api.client.get("/reports/").content.decode()
    assert "lemon_repairs" in fields(api.call("patch", "clusters/east", {"lemon_repairs": "perhaps"}))
    off = api.call("patch", "clusters/east", {"lemon_repairs": False, "reason": "enough"})
    assert off.json()["lemon_repairs"] is False
