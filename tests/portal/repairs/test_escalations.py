"""Repairs that the portal reports, behind a real engine on a fake cluster."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from kcover import reasons
from kcover.repairs.repairs import Move, Part
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.lib import doorbell
from kcover_portal.repairs import queries, services, tasks
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue import services as rescue
from kcover_portal.rescue.models import Decision, Rescue
from tests.portal.api.conftest import add_story
from tests.portal.repairs.conftest import GPU, Report, add_validation
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
LIMIT = reasons.of("inspection", reboots=3, within=reasons.span(HOUR), kind="xid", code="62")
ESCALATE = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: ask}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      escalate: replace the GPU
      actions: [{name: cordon}]
"""


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World(policy=ESCALATE)
    yield made
    made.uninstall()


def test_a_fault_that_only_hands_can_repair(world: World) -> None:
    world.fault()
    called = world.until("succeeded")
    assert (called.outcome, called.needs_human) == ("escalated", True)
    tasks.sweep()
    row = Repair.objects.get()
    assert (row.rescue, row.part, row.opened_by) == (called, Part(), "system")
    assert [reason.code for reason in row.reasons] == ["repair_of_rescue", "escalated"]
    for move in (Move.ACCEPT, Move.HAND_OVER, Move.RETURN):
        services.act(row, move, actor="user:ann", reason="go on", now=timezone.now())
    add_validation(world.node(), at=timezone.now() + timedelta(seconds=1))
    tasks.sweep()
    row.refresh_from_db()
    assert row.state == "validating"
    services.act(row, Move.CLOSE, actor="user:ann", reason="sound", now=timezone.now())
    tasks.sweep()
    assert Repair.objects.count() == 1


def test_a_rescue_that_calls_a_person_wakes_whoever_opens_its_repair(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[tuple[object, ...]] = []
    monkeypatch.setattr(doorbell, "ring", lambda *call: rung.append(call))
    world.fault()
    world.until("succeeded")
    assert rung.count((tasks.sweep.name,)) == 1


def test_a_node_that_is_released_gets_no_repair(world: World) -> None:
    world.fault()
    world.until("succeeded")
    rescue.request(world.node(), "release", actor="user:ann", reason="done by hand", now=world.now)
    world.work()
    tasks.sweep()
    assert not Repair.objects.exists()


@pytest.fixture
def escalated(node: Node, now: datetime) -> Rescue:
    """A rescue that called a person about the node's GPU."""
    rescue = add_story(node, now)
    rescue.incidents.update(device="0000:4e:00.0")
    Rescue.objects.filter(pk=rescue.pk).update(
        state="succeeded", outcome=queries.ESCALATED, needs_human=True, marks={"cordon": True}, closed_at=now
    )
    return rescue


def test_a_rescue_that_calls_a_person_gets_one_repair(escalated: Rescue, now: datetime) -> None:
    (row,) = services.report_escalated(now=now)
    assert (row.rescue, row.part, row.opened_by, row.assignee) == (escalated, GPU, "system", "")
    assert row.reasons[0].code == "repair_of_rescue"
    assert services.report_escalated(now=now) == []
    Repair.objects.update(state="closed", closed_at=now + HOUR)
    assert services.report_escalated(now=now + HOUR) == []


def test_a_rescue_without_a_known_gpu_is_about_the_machine(escalated: Rescue, now: datetime) -> None:
    escalated.incidents.update(device="")
    (row,) = services.report_escalated(now=now)
    assert row.part == Part()


def test_an_open_repair_of_the_node_covers_its_rescue(escalated: Rescue, report: Report, now: datetime) -> None:
    row = report()
    assert services.report_escalated(now=now) == []
    Repair.objects.filter(pk=row.pk).update(state="closed", closed_at=now - HOUR)
    assert len(services.report_escalated(now=now)) == 1


def test_a_node_at_the_limit_of_reboots_gets_one_repair(node: Node, now: datetime) -> None:
    rescue = add_story(node, now)
    rescue.delete()
    matched = reasons.of("nothing_holds_back").to_json()
    Decision.objects.update(answer="hold", because=[matched, reasons.of("pod_gone").to_json()])
    assert services.report_escalated(now=now) == []
    Decision.objects.update(because=[matched, LIMIT.to_json()], needs_person=True)
    (row,) = services.report_escalated(now=now)
    assert (row.reasons, row.rescue, row.part) == ((LIMIT,), None, Part())
    assert services.report_escalated(now=now) == []
    Repair.objects.update(state="closed", closed_at=now)
    assert services.report_escalated(now=now) == []
    Incident.objects.update(last_at=now + HOUR)  # the fault came back after the repair
    assert len(services.report_escalated(now=now + HOUR)) == 1


def test_a_drill_orders_no_repair(escalated: Rescue, now: datetime) -> None:
    Incident.objects.update(drill=True)
    assert services.report_escalated(now=now) == []


@pytest.mark.parametrize("changes", [{"marks": {}}, {"outcome": "isolated"}, {"needs_human": False}])
def test_other_rescues_get_no_repair(escalated: Rescue, now: datetime, changes: dict[str, Any]) -> None:
    Rescue.objects.filter(pk=escalated.pk).update(**changes)
    assert services.report_escalated(now=now) == []
