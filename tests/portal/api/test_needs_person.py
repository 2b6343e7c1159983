"""``GET /needs-person``: what the first page lists, as data."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover import reasons
from kcover.decisions import guards
from kcover.needs import Need
from kcover_portal import needs_person
from kcover_portal.api.v1 import needs_person as door
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs.models import JobOrder
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.models import Rescue
from kcover_portal.sources.models import Source
from tests.portal.api.conftest import Api, add_node, add_story, caller, fields, problem

pytestmark = pytest.mark.django_db

WATCH_FAILURE = reasons.of("cluster_rejected", error="forbidden")
WHY = reasons.of("pod_gone").to_json()


def add_fault(node: Node, now: datetime) -> Incident:
    """A fault that nothing handles."""
    return Incident.objects.create(
        cluster=node.cluster, node=node, kind="xid", code="79", severity="fatal", opened_at=now, last_at=now
    )


@pytest.fixture
def waiting(node: Node, now: datetime) -> dict[str, str]:
    """One item of each kind in the cluster east; their ids or names by kind."""
    east = node.cluster
    asked, left = add_story(node, now), add_story(add_node(east, "gpu-2", now), now)
    until = now + timedelta(hours=1)
    Rescue.objects.filter(pk=asked.pk).update(state="held", hold="approval", expires_at=until)
    Rescue.objects.filter(pk=left.pk).update(state="failed", marks={"cordon": True}, because=WHY, closed_at=now)
    fault = add_fault(add_node(east, "gpu-3", now), now)
    shared = guards.Symptom(trait="switch", value="leaf-3", nodes=3)
    storm, _ = incidents.keep_storm(east, shared, nodes=["gpu-1"], now=now)
    found = reasons.of("storm_of_switch", value="x")
    ledger, _ = incidents.keep_cluster_incident(east, kind="ledger", code="diverged", because=found, now=now)
    order = JobOrder.objects.create(
        cluster=east,
        namespace="train",
        kind="Job",
        name="llm",
        action="restart",
        cause="person",
        requested_by="user:ann",
        requested_at=now,
        state="held",
        because=WHY,
        due_at=now,
    )
    repair = Repair.objects.create(
        cluster=east, node=node, node_name=node.name, opened_by="t", reported_at=now, due=now - timedelta(days=9999)
    )
    Cluster.objects.filter(pk=east.pk).update(watch_error=WATCH_FAILURE.to_json(), watched_at=now)
    source = Source.objects.create(
        name="alerts", kind="alertmanager", cluster=east, created_by="t", created_at=now, error=WHY, error_at=now
    )
    return {
        "approval": str(asked.pk),
        "rescue": str(left.pk),
        "incident": str(fault.pk),
        "storm": str(storm.pk),
        "ledger": str(ledger.pk),
        "job": str(order.pk),
        "repair": str(repair.pk),
        "watch": east.name,
        "source": source.name,
    }


def by_kind(api: Api, query: str = "") -> dict[str, dict[str, Any]]:
    rows = api.get(f"needs-person{query}").json()["results"]
    found = {row["kind"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def test_every_kind_is_listed_with_its_row(waiting: dict[str, str], viewer: Api, now: datetime) -> None:
    found = by_kind(viewer)
    assert list(found) == list(Need)
    assert {kind: row["about"]["id"] for kind, row in found.items()} == waiting
    assert {row["about"]["type"] for row in found.values()} == set(door.TYPES)
    assert {row["cluster"] for row in found.values()} == {"east"}
    assert [found[kind]["node"] for kind in ("approval", "rescue", "incident", "storm")] == [
        *("gpu-1", "gpu-2", "gpu-3"),
        "",
    ]
    assert found["approval"]["until"] is not None
    assert all(row["since"] for row in found.values())
    assert (found["rescue"]["reasons"], found["rescue"]["reason"]) == ([WHY], str(reasons.from_json(WHY)))
    assert (found["watch"]["reasons"], found["watch"]["reason"]) == (
        [WATCH_FAILURE.to_json()],
        str(WATCH_FAILURE),
    )


def test_the_numbers_are_those_of_the_metrics(waiting: dict[str, str], viewer: Api, now: datetime) -> None:
    counts = viewer.get("needs-person").json()["counts"]
    known = needs_person.counts(list(Cluster.objects.all()), now=now)
    assert counts == {kind: known["east", kind] for kind in Need}


def test_of_more_than_is_listed_the_number_is_told(
    waiting: dict[str, str], viewer: Api, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MAX_LISTED", 1)
    later = add_fault(add_node(Cluster.objects.get(name="east"), "gpu-4", now), now + timedelta(hours=1))
    with CaptureQueriesContext(connection) as asked:
        body = viewer.get("needs-person").json()
    assert (body["count"], body["counts"]["incident"], len(body["results"])) == (10, 2, 9)
    assert str(later.pk) not in [row["about"]["id"] for row in body["results"] if row["kind"] == "incident"]
    assert len(asked) < 30


def test_only_of_what_the_caller_may_see(waiting: dict[str, str], west: Cluster, viewer: Api, now: datetime) -> None:
    api = caller("viewer", now, cluster=west)
    assert api.get("needs-person").json() == {"count": 0, "counts": dict.fromkeys(Need, 0), "results": []}
    problem(api.get("needs-person?cluster=east"), 404)
    assert by_kind(viewer, "?cluster=west") == {}
    assert set(by_kind(viewer, "?cluster=east")) == set(Need)
    assert "nonsense" in fields(viewer.get("needs-person?nonsense=1"))
    problem(Api().get("needs-person"), 401)
