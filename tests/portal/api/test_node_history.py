"""The last 30 days of a node: lanes, marks, times out of service; who sees them, and how many statements they take."""

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kcover import audit
from kcover.nodes import node_history
from kcover_portal.checks.models import ValidatedNode, Validation
from kcover_portal.fleet.models import Cluster, Gpu, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import services as ledger
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.shared_reads import node_history as histories
from tests.portal.api.conftest import Api, add_node, add_story, caller, problem

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
DAY = node_history.DAY
PATH = "nodes/east/gpu-1/history"


@pytest.fixture
def now() -> datetime:
    return timezone.now()


def day_of(now: datetime, day: int) -> datetime:
    """A time well within a day of the history."""
    return node_history.window(now)[0] + day * DAY + 2 * HOUR


def add_past(node: Node, at: datetime) -> Rescue:
    """A fault of the GPU that was healed in an hour, a validation that failed, a repair, and a person's act."""
    rescue = add_story(node, at, state="succeeded")
    Incident.objects.filter(rescues=rescue).update(
        device="0000:4e:00.0", state="closed", closed_at=at + HOUR, code=f"{62 + Incident.objects.count()}"
    )
    Rescue.objects.filter(pk=rescue.pk).update(verified=True, closed_at=at + HOUR, outcome="healed")
    Step.objects.filter(rescue=rescue, name="cordon").update(finished_at=at)
    Step.objects.create(rescue=rescue, index=2, name="uncordon", state="done", finished_at=at + HOUR)
    about = {"requested_by": "user:ada", "requested_at": at, "finished_at": at + 1.5 * HOUR}
    validation = Validation.objects.create(cluster=node.cluster, profile="light", document={}, state="failed", **about)
    ValidatedNode.objects.create(validation=validation, node=node, state="failed")
    Repair.objects.create(
        cluster=node.cluster,
        node=node,
        node_name=node.name,
        part_kind="gpu",
        part_serial=f"S-{node.name}",
        opened_by="user:ada",
        state="closed",
        reported_at=at,
        closed_at=at + 24 * HOUR,
    )
    ledger.record(
        node.cluster.name,
        audit.RescueApproved(node=node.name, rescue=rescue.pk, step=1, plan_hash="abc", granted=True),
        actor="user:bo",
        now=at,
    )
    return rescue


def test_each_record_has_its_mark_on_its_lane(node: Node, now: datetime, viewer: Api) -> None:
    rescue = add_past(node, day_of(now, 27))
    found = viewer.get(PATH).json()
    assert found["complete"] is True
    assert [(lane["gpu"], lane["index"]) for lane in found["lanes"]] == [(None, None), ("GPU-gpu-1", 0)]
    of_node, of_gpu = (
        [(mark["kind"], mark["count"], [one["about"] for one in mark["named"]]) for mark in lane["marks"]]
        for lane in found["lanes"]
    )
    assert of_node == [
        ("portal", 1, ["rescue"]),
        ("person", 1, ["entry"]),
        ("proof", 2, ["validation", "rescue"]),
    ]
    assert of_gpu == [("fault", 1, ["incident"]), ("repair", 1, ["repair"]), ("repair", 1, ["repair"])]
    outs = [[(one["why"], one["until"] is None) for one in lane["out_of_service"]] for lane in found["lanes"]]
    assert outs == [[("isolated", False)], [("fault", False), ("repair", False)]]
    portal, person, proof = (mark["named"][0] for mark in found["lanes"][0]["marks"])
    assert (portal["id"], portal["code"], portal["state"]) == (rescue.pk, "xid 62", "healed")
    assert (person["code"], person["by"], person["rescue"]) == ("rescue.approved", "user:bo", rescue.pk)
    assert (proof["code"], proof["state"], proof["bad"], proof["title_reason"]) == ("light", "failed", True, None)


def test_a_storm_of_faults_is_one_mark_and_open_marks_have_no_end(node: Node, now: datetime, viewer: Api) -> None:
    faults = {"cluster": node.cluster, "node": node, "kind": "xid", "opened_at": now, "last_at": now}
    Incident.objects.bulk_create([Incident(code=f"{code}", severity="info", **faults) for code in range(1000, 1200)])
    Incident.objects.create(code="79", severity="fatal", gpu_uuid="GPU-gone", **faults)
    Incident.objects.create(code="31", severity="fatal", is_user_fault=True, **faults)
    of_node, of_gpu = viewer.get(PATH).json()["lanes"]
    assert [(mark["kind"], mark["count"], len(mark["named"])) for mark in of_node["marks"]] == [("fault", 202, 5)]
    assert [(one["why"], one["until"]) for one in of_node["out_of_service"]] == [("fault", None)]
    assert (of_gpu["marks"], of_gpu["out_of_service"]) == ([], [])


def test_a_history_takes_nine_statements(node: Node, now: datetime) -> None:
    taken = []
    for number in (1, 2, 3):
        add_past(node, day_of(now, 28 - 2 * number))
        Gpu.objects.create(node=node, index=number, uuid=f"GPU-{number}", seen_at=now)
        with CaptureQueriesContext(connection) as statements:
            found = histories.of(node, now=now)
        taken.append((len(found.lanes), len(statements)))
    assert taken == [(3, 9), (4, 9), (5, 9)]


def test_only_callers_who_see_the_node_see_its_history(node: Node, west: Cluster, now: datetime, viewer: Api) -> None:
    add_node(west, "gpu-1", now, pool="b")
    assert caller("viewer", now, cluster=node.cluster).get(PATH).status_code == 200
    stranger = caller("viewer", now, cluster=west)
    problem(stranger.get(PATH), 404)
    assert stranger.get("nodes/west/gpu-1/history").status_code == 200
    problem(viewer.get(f"{PATH}?since=now"), 400)
    problem(Api().get(PATH), 401)
