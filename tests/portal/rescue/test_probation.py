"""A returned node takes only work that may be lost until its probation is over."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from kcover import reasons
from kcover.nodes import probation
from kcover.nodes.probation_mark import ANNOTATION, LABEL
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry
from kcover_portal.repairs import tasks as repairs
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Probation, Rescue
from kcover_portal.rescue.queries import past_rescues, probations
from kcover_portal.rescue.step import lease
from tests import proofs
from tests.codes import code_of, codes_of
from tests.portal.rescue import agents, worker_kills
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: returns}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      probation: 24h
      actions: [{name: cordon}, {name: drain}, {name: reboot, attribute: {unCordon: "true"}}]
    - priority: 9
      errorCode: ["48"]
      probation: auto
      actions: [{name: cordon}, {name: drain}, {name: reboot, attribute: {unCordon: "true"}}]
    - priority: 8
      errorCode: ["79"]
      actions: [{name: cordon}, {name: drain}, {name: reboot, attribute: {unCordon: "true"}}]
"""
TAINT = port.Taint(LABEL, "", "NoSchedule")
DAY = timedelta(hours=24)


@pytest.fixture
def returning(db: None) -> Iterator[World]:
    made = World(policy=POLICY, nodes=2)
    agents.comes_up(made)
    yield made
    made.uninstall()


def rebooted(world: World, code: int = 62) -> None:
    """A fault; the node is drained and rebooted, and its rescue is about to verify it."""
    world.fault(code)
    world.until_reboot_is_asked()
    world.reboot()


def returned(world: World, code: int = 62) -> Probation:
    """The node fails and is returned on probation."""
    rebooted(world, code)
    world.until("succeeded")
    world.sync()
    row = probations.on_node(world.node())
    assert row is not None
    return row


def on_probation(node: port.Node) -> bool:
    """All marks of a probation; AssertionError if only some are there."""
    shown = (TAINT in node.taints, LABEL in node.labels, ANNOTATION in node.annotations)
    assert len(set(shown)) == 1, node
    assert (node.labels.get("kcover.io/state") == "probation") == (shown[0] and not node.unschedulable)
    return shown[0]


def entries(verb: str) -> list[Entry]:
    return list(Entry.objects.filter(verb__startswith=verb).order_by("sequence"))


def test_inv_50_a_node_returns_with_label_and_taint_in_the_patch_that_uncordons_it(returning: World) -> None:
    row = returned(returning)
    node = returning.kube.get_node(NODE)
    assert (on_probation(node), node.unschedulable) == (True, False)
    [begun] = entries("uncordon.begun")
    [done] = entries("uncordon.done")
    assert done.data["answer"]["before"]["unschedulable"] is True
    assert "kcover.io/probation=:NoSchedule" in done.data["answer"]["after"]["taints"]
    assert begun.data["wanted"]["code"] == "probation"
    assert (row.seconds, row.until - row.began_at < DAY + timedelta(seconds=30)) == (DAY.total_seconds(), True)
    assert returning.node().probation_until == row.until
    assert code_of(row.because) == "probation_by_rule"
    [began] = entries("probation.began")
    assert (began.rescue, began.data["because"]) == (row.rescue_id, row.because)
    assert codes_of(returning.step("uncordon").because)[-2:] == ["on_probation_until", "probation_by_rule"]
    assert proofs.broken_claim(returning.rescue()) == ""
    assert ledger.verify("c1").intact


def test_the_end_takes_the_marks_off_without_a_rescue(returning: World) -> None:
    row = returned(returning)
    before = Rescue.objects.count()
    returning.pass_time(DAY.total_seconds() - 60)
    assert on_probation(returning.kube.get_node(NODE))
    returning.pass_time(61)
    node = returning.kube.get_node(NODE)
    assert (on_probation(node), node.taints, "kcover.io/state" in node.labels) == (False, (), False)
    row.refresh_from_db()
    assert (code_of(row.end_because), row.due_at, returning.node().probation_until) == ("probation_over", None, None)
    assert [entry.verb for entry in entries("end_probation")] == ["end_probation.begun", "end_probation.done"]
    assert [entry.data["because"]["code"] for entry in entries("probation.ended")] == ["probation_over"]
    assert Rescue.objects.count() == before
    assert proofs.broken_claim(returning.rescue()) == ""


def test_a_rule_without_the_key_returns_nodes_as_before(returning: World) -> None:
    rebooted(returning, 79)
    returning.until("succeeded")
    node = returning.kube.get_node(NODE)
    assert (on_probation(node), Probation.objects.count()) == (False, 0)


@pytest.mark.parametrize("when", ["planned", "patched"])
def test_inv_50_a_worker_that_dies_at_the_return_leaves_no_gap(returning: World, when: str) -> None:
    rebooted(returning)
    kube, real, seen = returning.kube, returning.kube.apply_node, []

    def dying(name: str, change: object, **more: object) -> object:
        row = Probation.objects.first()
        if row is None or seen:
            return real(name, change, **more)
        seen.append(name)
        if when == "patched":
            real(name, change, **more)
        raise worker_kills.Killed

    kube.apply_node = dying
    for _ in range(40):
        worker_kills.work(returning)
        returning.now += timedelta(seconds=1)
        returning.sync()
        node = kube.get_node(NODE)
        assert node.unschedulable or TAINT in node.taints
        if returning.rescue().state == "succeeded":
            break
    assert (returning.rescue().state, len(seen)) == ("succeeded", 1)
    assert on_probation(kube.get_node(NODE))
    row = Probation.objects.get()
    assert returning.node().probation_until == row.until == row.due_at
    assert len(entries("probation.began")) == 1
    assert proofs.broken_claim(returning.rescue()) == ""


@pytest.mark.parametrize("patched", [False, True])
def test_a_rescue_cancelled_at_the_return_leaves_no_probation(returning: World, patched: bool) -> None:
    rebooted(returning)
    real = returning.kube.apply_node

    def dying(name: str, change: object, **more: object) -> object:
        if not Probation.objects.exists():
            return real(name, change, **more)
        if patched:
            real(name, change, **more)
        raise worker_kills.Killed

    returning.kube.apply_node = dying
    for _ in range(40):
        if worker_kills.work(returning):
            break
        returning.now += timedelta(seconds=1)
        returning.sync()
    returning.kube.apply_node = real
    services.cancel(returning.rescue(), actor="user:anna", reason="no", now=returning.now)
    returning.pass_time(lease.TIME.total_seconds())
    returning.pass_time(60)
    row = Probation.objects.get()
    assert on_probation(returning.kube.get_node(NODE)) == patched
    assert (row.began_at is not None, row.ended_at is None) == (patched, patched)
    if not patched:
        assert code_of(row.end_because) == "probation_never_began"
    returning.pass_time(DAY.total_seconds())
    returning.pass_time(DAY.total_seconds())
    assert not on_probation(returning.kube.get_node(NODE))


@pytest.mark.parametrize("after", [False, True])
def test_inv_50_a_worker_that_dies_at_the_end_is_replaced(returning: World, after: bool) -> None:
    row = returned(returning)
    worker_kills.kill_at(returning.kube, "apply_node", call=1, after=after)
    returning.now = row.until
    assert worker_kills.work(returning)
    assert on_probation(returning.kube.get_node(NODE)) == (not after)
    returning.pass_time(1)
    assert not on_probation(returning.kube.get_node(NODE))
    row.refresh_from_db()
    assert (row.ended_at is not None, returning.node().probation_until) == (True, None)
    assert len(entries("probation.ended")) == 1


def test_inv_50_a_taint_added_after_the_end_stays_though_the_worker_died(returning: World) -> None:
    returned(returning)
    worker_kills.kill_at(returning.kube, "apply_node", call=1, after=True)
    returning.now += DAY
    assert worker_kills.work(returning)
    assert TAINT not in returning.kube.get_node(NODE).taints
    returning.kube.apply_node(NODE, lambda _: port.NodeChange(add_taints=(TAINT,)))  # by hand
    returning.sync()
    returning.pass_time(60)
    returning.work()
    assert probations.on_node(returning.node()) is None
    assert TAINT in returning.kube.get_node(NODE).taints


@pytest.mark.parametrize("silent", [{"mode": "paused"}, {"mode": "shadow"}, {"acted_on_by": "kured"}])
def test_no_probation_is_ended_in_a_mode_without_writes(returning: World, silent: dict[str, str]) -> None:
    row = returned(returning)
    before = returning.cluster.mode
    type(returning.cluster).objects.filter(pk=returning.cluster.pk).update(**silent)
    version = returning.kube.get_node(NODE).resource_version
    returning.now = row.until
    returning.work()
    returning.pass_time(60)
    assert returning.kube.get_node(NODE).resource_version == version
    assert entries("end_probation") == []
    type(returning.cluster).objects.filter(pk=returning.cluster.pk).update(mode=before, acted_on_by="")
    returning.pass_time(31)
    assert not on_probation(returning.kube.get_node(NODE))


def test_a_person_ends_a_probation_early(returning: World) -> None:
    row = returned(returning)
    services.end_probation(returning.node(), actor="user:anna", reason="needed", now=returning.now)
    services.end_probation(returning.node(), actor="user:bob", reason="also", now=returning.now)
    returning.pass_time(1)
    assert not on_probation(returning.kube.get_node(NODE))
    row.refresh_from_db()
    because = reasons.of("probation_ended_by_because", by="user:anna", why="needed")
    assert reasons.from_json(row.end_because) == because
    [asked] = entries("probation.end_requested")
    assert (asked.actor, asked.data["reason"]) == ("user:anna", "needed")
    with pytest.raises(services.RescueRefused) as refused:
        services.end_probation(returning.node(), actor="user:anna", reason="again", now=returning.now)
    assert refused.value.reason.code == "no_probation"


def test_a_release_ends_a_probation_too(returning: World) -> None:
    returning.now = timezone.now()
    row = returned(returning)
    returning.now = timezone.now()
    call_command("release", "--all", "--cluster", "c1")
    returning.pass_time(1)
    assert returning.rescue().state == "succeeded"
    assert not on_probation(returning.kube.get_node(NODE))
    row.refresh_from_db()
    assert (code_of(row.end_because), returning.node().probation_until) == ("released_by", None)


def test_inv_50_a_taint_that_someone_removes_ends_it(returning: World) -> None:
    row = returned(returning)
    returning.kube.apply_node(NODE, port.NodeChange(remove_taints=(TAINT,)))
    returning.sync()
    returning.pass_time(1)
    assert not on_probation(returning.kube.get_node(NODE))
    row.refresh_from_db()
    assert code_of(row.end_because) == "probation_removed_by_hand"
    assert [entry.data["because"]["code"] for entry in entries("probation.ended")] == ["probation_removed_by_hand"]
    returning.pass_time(DAY.total_seconds())
    assert not on_probation(returning.kube.get_node(NODE))


def test_a_late_watch_ends_no_probation(returning: World) -> None:
    returned(returning)
    Node.objects.filter(name=NODE).update(taints=[])
    services.reconcile(now=returning.now)
    assert probations.on_node(returning.node()).end_because == {}


def test_marks_that_another_changed_stay(returning: World) -> None:
    foreign = port.Taint(LABEL, "theirs", "NoSchedule")
    returning.kube.apply_node(NODE, port.NodeChange(add_taints=(foreign,), labels={LABEL: "soon"}))
    row = returned(returning)
    assert returning.kube.get_node(NODE).taints == (foreign,)
    returning.now = row.until
    returning.pass_time(1)
    node = returning.kube.get_node(NODE)
    assert (node.taints, node.labels[LABEL], ANNOTATION in node.annotations) == ((foreign,), "soon", False)


def test_another_machine_under_the_name_is_left_alone(returning: World) -> None:
    row = returned(returning)
    returning.kube.objects.remove("Node", "", NODE)
    returning.kube.add_node(NODE, gpus=8)
    returning.now = row.until
    returning.pass_time(1)
    row.refresh_from_db()
    assert (code_of(row.end_because), entries("end_probation")) == ("another_machine", [])
    assert returning.node().probation_until is None


def test_a_second_fault_starts_a_new_probation_at_its_return(returning: World) -> None:
    first = returned(returning)
    returning.pass_time(3600)
    rebooted(returning)
    node = returning.kube.get_node(NODE)
    assert (node.unschedulable, TAINT in node.taints) == (True, True)
    returning.until("succeeded")
    second = probations.on_node(returning.node())
    first.refresh_from_db()
    assert (code_of(first.end_because), second.rescue) == ("probation_renewed", returning.rescue())
    assert returning.node().probation_until == second.until > first.until
    returning.now = first.until
    returning.sync()
    returning.work()
    assert on_probation(returning.kube.get_node(NODE))
    returning.now = second.until
    returning.pass_time(1)
    assert not on_probation(returning.kube.get_node(NODE))
    assert returning.kube.get_node(NODE).taints == ()


def test_a_probation_may_end_during_a_rescue(returning: World) -> None:
    row = returned(returning)
    returning.now = row.until - timedelta(seconds=60)
    returning.report()
    returning.fault(79)
    returning.until_reboot_is_asked()
    returning.pass_time(60)
    node = returning.kube.get_node(NODE)
    assert (TAINT in node.taints, node.unschedulable) == (False, True)
    assert node.labels["kcover.io/state"] not in ("", "probation")
    returning.reboot()
    returning.until("succeeded")
    node = returning.kube.get_node(NODE)
    assert (on_probation(node), "kcover.io/state" in node.labels, node.unschedulable) == (False, False, False)


def test_a_rescue_without_probation_leaves_an_earlier_one_on_the_node(returning: World) -> None:
    row = returned(returning)
    rebooted(returning, 79)
    returning.until("succeeded")
    assert on_probation(returning.kube.get_node(NODE))
    assert probations.on_node(returning.node()) == row


def test_auto_chooses_by_the_returns_of_the_fleet_and_records_the_basis(returning: World) -> None:
    row = returned(returning, 48)
    chosen = probation.of_rule("auto", fault_class="memory", past=[])
    assert (row.seconds, reasons.from_json(row.because)) == (chosen.length.total_seconds(), chosen.because)
    [past] = probations.returns(now=returning.now + DAY)
    assert (past.fault_class, past.repeated) == ("memory", False)
    returning.pass_time(3600)
    rebooted(returning, 48)
    [past] = probations.returns(now=returning.now)
    assert (past.fault_class, past.repeated) == ("memory", True)
    assert timedelta(hours=1) <= past.lasted <= timedelta(hours=1, minutes=1)


def test_a_fault_on_probation_counts_twice_and_opens_a_repair(returning: World) -> None:
    since = returning.now
    returned(returning)
    rebooted(returning)
    rescue = returning.rescue()
    assert (rescue.on_probation, rescue.decision.facts["node"]["on_probation"]) == (True, True)
    mending = ("reboot",)
    assert past_rescues.PastRescues([returning.node()]).repairs(returning.node(), mending, since=since) == 3
    assert past_rescues.repairs(Rescue.objects.all(), since=since) == 3
    repairs.sweep()
    repairs.sweep()
    [repair] = Repair.objects.all()
    assert (repair.rescue, repair.node.name) == (rescue, NODE)
    assert [reason["code"] for reason in repair.opened_because] == ["repair_on_probation"]
    returning.until("succeeded")
    assert proofs.broken_claim(rescue) == ""


def test_a_first_fault_counts_once_and_opens_no_repair(returning: World) -> None:
    since = returning.now
    returned(returning)
    assert past_rescues.repairs(Rescue.objects.all(), since=since) == 1
    repairs.sweep()
    assert not Repair.objects.exists()


def test_a_drill_on_probation_opens_no_repair(returning: World) -> None:
    returned(returning)
    rebooted(returning)
    returning.rescue().incidents.update(drill=True)
    repairs.sweep()
    assert not Repair.objects.exists()
