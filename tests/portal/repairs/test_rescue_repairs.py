"""Repairs that a rule asks for: opened once, and the node stays isolated until a passed validation closes them."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from kcover.nodes import node_stage
from kcover.repairs import repairs
from kcover.repairs.repairs import Move, Part
from kcover_portal.fleet import services as fleet
from kcover_portal.ledger.models import Entry
from kcover_portal.repairs import services
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue import services as rescue
from kcover_portal.rescue.step import repair_desk
from tests import proofs
from tests.codes import code_of
from tests.portal.repairs.conftest import add_validation
from tests.portal.rescue import worker_kills
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: rma}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions: [{name: repair, attribute: {vendor: ACME, queue: gpu, unCordon: "true"}}]
"""


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy=POLICY)
    yield made
    made.uninstall()


def opened(world: World) -> Repair:
    world.fault(62)
    for _ in range(5):
        world.work()
        world.pass_time()
    return Repair.objects.get()


def close(world: World, row: Repair) -> None:
    for move in (Move.ACCEPT, Move.HAND_OVER, Move.RETURN):
        services.act(row, move, actor="user:ann", reason="go on", now=timezone.now())
    add_validation(world.node(), at=timezone.now() + timedelta(seconds=1))
    services.look_at_validations(now=timezone.now())
    services.act(row, Move.CLOSE, actor="user:ann", reason="sound", now=timezone.now())


def test_inv_52_the_node_stays_isolated_until_the_repair_is_closed(world: World) -> None:
    row = opened(world)
    assert (row.vendor, row.queue, row.part, row.rescue) == ("ACME", "gpu", Part(), world.rescue())
    assert (code_of(row.opened_because[0]), row.opened_role) == ("repair_by_rule", "operator")
    for _ in range(5):
        world.pass_time(3600)
        world.report()
        world.work()
    node, step = world.kube.get_node(NODE), world.step("repair")
    assert (node.unschedulable, node.labels[node_stage.STATE_LABEL], step.state) == (True, "repair", "waiting")
    assert code_of(step.because) == "repair_open"
    close(world, row)
    for _ in range(30):
        world.pass_time(5)
        world.report()
        world.work()
    assert (world.rescue().state, world.rescue().outcome) == ("succeeded", "healed")
    assert not world.kube.get_node(NODE).unschedulable
    assert Repair.objects.count() == 1
    assert proofs.broken_claim(world.rescue()) == ""


def test_a_node_that_a_person_takes_offline_comes_back_by_a_passed_validation(world: World) -> None:
    """KCE's atom "node offline" as one act: drain, taint, hand over to the repair desk, and back."""
    world.kube.add_pod("train", "worker", node=NODE, owner_kind="ReplicaSet")
    plan = rescue.preview(world.node(), "offline", now=world.now)
    assert [step["name"] for step in plan.steps] == ["cordon", "taint", "drain", "repair", "verify", "uncordon"]
    rescue.request(world.node(), "offline", actor="user:ann", reason="ticket 7", now=world.now)
    for _ in range(10):
        world.work()
        world.pass_time()
    row, node = Repair.objects.get(), world.kube.get_node(NODE)
    assert [str(taint) for taint in node.taints if taint.key == "kcover.io/offline"]
    assert (node.unschedulable, world.kube.list_pods(node=NODE)) == (True, [])
    assert (code_of(row.opened_because[0]), world.step("repair").state) == ("repair_by_hand", "waiting")
    close(world, row)
    for _ in range(30):
        world.pass_time(5)
        world.report()
        world.work()
    node = world.kube.get_node(NODE)
    assert (world.rescue().state, node.unschedulable, node.taints) == ("succeeded", False, ())
    assert proofs.broken_claim(world.rescue()) == ""


def test_an_open_repair_of_the_part_is_the_one(world: World) -> None:
    known = services.report(world.node(), part=Part(), actor="user:ann", now=timezone.now())
    assert opened(world) == known
    assert world.step("repair").progress["repair"] == known.pk


@pytest.mark.parametrize("after", [False, True])
def test_inv_52_a_worker_that_dies_opens_one_repair(
    world: World, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    desk = repair_desk.registered()
    real = desk.open

    def dying(order: repair_desk.Order, *, now: datetime) -> int:
        monkeypatch.undo()
        if after:
            real(order, now=now)  # its transaction is lost with the worker
        raise worker_kills.Killed

    monkeypatch.setattr(desk, "open", dying)
    world.fault(62)
    assert any(worker_kills.work(world) for _ in range(5))
    assert opened(world).rescue == world.rescue()
    assert Entry.objects.filter(verb="repair.begun").count() == 2  # one attempt was lost


def test_a_node_that_left_for_the_workshop_ends_nothing_and_one_taken_back_does(world: World) -> None:
    row = opened(world)
    manifest = world.kube.objects.get("Node", "", NODE)
    world.kube.objects.remove("Node", "", NODE)
    world.pass_time(60)
    assert (world.rescue().state, code_of(world.step("repair").because)) == ("waiting", "repair_open")
    world.kube.objects.create(manifest)
    world.kube.uncordon(NODE)
    world.pass_time(60)
    assert (world.rescue().state, code_of(world.rescue().because)) == ("failed", "step_ended")
    row.refresh_from_db()
    assert row.state == repairs.State.REPORTED


def test_no_repair_is_opened_while_paused_and_a_cancelled_rescue_keeps_its_repair(world: World) -> None:
    world.fault(62)
    fleet.pause(cluster=world.cluster, reason="x", actor="t", now=world.now)
    world.pass_time(60)
    assert not Repair.objects.exists()
    fleet.resume(cluster=world.cluster, reason="x", actor="t", now=world.now)
    row = opened(world)
    rescue.cancel(world.rescue(), actor="user:ann", reason="by hand", now=world.now)
    row.refresh_from_db()
    assert row.state == repairs.State.REPORTED
