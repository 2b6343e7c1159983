"""Invariants 1 to 7, 15, 17, 23, 34: the identity of faults, repeated messages, and the state after an outage."""

import itertools
import random
from datetime import timedelta

import pytest

from kcover import reasons, wire
from kcover.faults.fault import OVERFLOW, Fault, Gpu, Inventory
from kcover.nodes import marks
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.incidents.services import occurrences, overflow, record_faults
from kcover_portal.kube import port
from kcover_portal.policies import services as policies
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Decision, Rescue
from tests.codes import code_of
from tests.portal.rescue.worker_kills import kill_at, work
from tests.portal.rescue.world import CORDON, HEAL, NODE, PCI, World

pytestmark = pytest.mark.django_db
OTHER_PCI = "0000:4f:00"
BOTH = """
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata: {name: both}
spec:
  rules:
    - {priority: 20, errorCode: ["79"], actions: [{name: cordon}]}
    - priority: 10
      errorCode: ["62"]
      actions: [{name: cordon}, {name: drain}, {name: reboot, attribute: {unCordon: "true"}}]
"""
NAMES_OVERFLOW = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: overflow}
spec: {rules: [{priority: 10, match: {kinds: [overflow]}, mode: enforce, actions: [{name: cordon}]}]}
"""


def xid(code: int, pci: str = PCI, **more: object) -> Fault:
    return Fault(kind="xid", code=code, pci=pci, source="kmsg", **more)


def test_inv_01_identical_events_make_one_incident_each_and_one_rescue_a_node(world: World) -> None:
    """800,000 occurrences of 29 faults, as agents send them: runs of equal lines in one item."""
    codes = (48, 62, 64, 79, 92, 94, 95, 31)
    distinct = [xid(codes[n % 8], f"0000:{n // 8:02x}:00", count=2_759) for n in range(29)]
    for _ in range(10):
        world.report(*distinct)
        world.work()
        world.pass_time(2)
    assert Incident.objects.count() == 29
    assert sum(Incident.objects.values_list("count", flat=True)) == 29 * 10 * 2_759 > 800_000
    assert Rescue.objects.count() == 1
    assert Occurrence.objects.count() <= 29 * occurrences.MAX_ROWS
    assert Decision.objects.count() <= 2 * 29  # equal answers raise a count


def test_inv_01_a_storm_of_one_line_keeps_a_bounded_number_of_rows(world: World) -> None:
    for _ in range(3 * occurrences.MAX_ROWS):
        world.fault(62)
    incident = Incident.objects.get()
    assert incident.count == 3 * occurrences.MAX_ROWS
    assert incident.occurrences.count() == occurrences.MAX_ROWS
    assert sum(incident.occurrences.values_list("count", flat=True)) == incident.count


@pytest.mark.parametrize("skew", [-86_400, 86_400])
def test_inv_03_order_and_clocks_of_agents_do_not_change_the_outcome(skew: int, db: None) -> None:
    seen = [xid(62), xid(62), xid(48, OTHER_PCI), xid(64), xid(13)]
    ends = set()
    for order in random.Random(1).sample(list(itertools.permutations(range(len(seen)))), 6):
        world = World(policy=HEAL)
        for place in order:
            wrong = timedelta(seconds=skew * (1 if place % 2 else -1))
            fault = xid(int(seen[place].code), seen[place].pci or "", seen_at=world.now + wrong)
            world.report(fault)
            world.now += timedelta(seconds=1)
        world.until_reboot_is_asked()
        world.reboot()
        world.until("succeeded")
        rows = Incident.objects.filter(cluster=world.cluster)
        ends.add(tuple(sorted(rows.values_list("code", "device", "count", "state"))))
        assert all(row.opened_at <= row.last_at <= (row.closed_at or row.last_at) for row in rows)
        assert Rescue.objects.filter(cluster=world.cluster).count() == 1
        world.uninstall()
        world.cluster.name = f"was-{world.cluster.pk}"
        world.cluster.save()
    assert len(ends) == 1


def test_inv_04_a_late_recovery_closes_nothing_that_was_seen_after_it(world: World) -> None:
    world.fault(62)
    proof = world.now
    world.now += timedelta(seconds=5)
    world.fault(62)
    world.fault(48)
    open_ = list(Incident.objects.values_list("pk", flat=True))
    assert (
        incidents.close(
            open_,
            because=reasons.of("closed_by_because", by="test", why="healthy"),
            actor="test",
            now=world.now,
            before=proof,
        )
        == 0
    )
    assert set(Incident.objects.values_list("state", flat=True)) == {"open"}
    assert (
        incidents.close(
            open_,
            because=reasons.of("closed_by_because", by="test", why="healthy"),
            actor="test",
            now=world.now,
            before=world.now,
        )
        == 2
    )


def test_inv_05_two_faults_in_one_millisecond_are_both_kept(world: World) -> None:
    world.report(xid(62), xid(79))
    world.report(xid(48))
    assert sorted(Incident.objects.values_list("code", flat=True)) == ["48", "62", "79"]
    assert len(set(Incident.objects.values_list("opened_at", flat=True))) == 1


def test_inv_05_faults_beyond_the_bound_are_counted_in_one_incident_that_no_rule_acts_on(world: World) -> None:
    count = overflow.MAX_OPEN_INCIDENTS_PER_KIND + 10
    world.report(*(Fault(kind="other", code=f"c{number}", source="agent") for number in range(count)))
    beyond = Incident.objects.get(kind=OVERFLOW)
    assert beyond.count == 10
    assert Incident.objects.exclude(pk=beyond.pk).count() == overflow.MAX_OPEN_INCIDENTS_PER_KIND
    world.work()
    assert not Rescue.objects.exists()
    policies.apply(NAMES_OVERFLOW, author="test", reason="", now=world.now)
    world.pass_time(record_faults.REDECIDE_AFTER.total_seconds())
    world.report(Fault(kind="other", code="another", source="agent"))
    world.work()
    assert Rescue.objects.get().fault_kind == OVERFLOW


def test_inv_06_two_gpus_with_one_code_are_two_incidents(world: World) -> None:
    world.report(xid(62), xid(62, OTHER_PCI))
    world.work()
    assert sorted(Incident.objects.values_list("device", flat=True)) == [f"{PCI}", f"{OTHER_PCI}"]
    assert Rescue.objects.count() == 1


def inventory(world: World, uuid: str) -> None:
    gpu = Gpu(index=0, uuid=uuid, pci=PCI, model="H100", serial="1")
    found = Inventory(driver="550", kernel="6.1", gpus=(gpu,))
    report = wire.Report(
        node=NODE,
        boot_id=world.kube.get_node(NODE).boot_id,
        batch_id="0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a11"
        if uuid.endswith("1")
        else "0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a12",
        sent_at=world.now,
        inventory=found,
    )
    incoming = incidents.IncomingReport.of(world.cluster, report, received_at=world.now)
    incidents.ingest([incoming], now=world.now)


def test_inv_07_the_incident_of_a_gpu_that_was_replaced_can_be_closed(world: World) -> None:
    inventory(world, "GPU-1")
    world.fault(62)
    old = Incident.objects.get()
    assert old.gpu_uuid == "GPU-1"
    world.until_reboot_is_asked()
    inventory(world, "GPU-2")  # another card in the same slot
    world.reboot()
    world.until("succeeded")
    old.refresh_from_db()
    assert old.state == "closed"
    world.fault(62)
    assert Incident.objects.get(state="open").gpu_uuid == "GPU-2"


@pytest.mark.parametrize("days", [0, 3, 40])
def test_inv_15_after_an_outage_current_faults_are_acted_on_and_ended_ones_are_not(days: int, db: None) -> None:
    world = World(policy=CORDON, nodes=2)
    world.fault(62)
    world.fault(62, node="gpu-2")
    over = Incident.objects.get(node__name="gpu-2")
    world.now += timedelta(days=days)
    incidents.close(
        [over.pk],
        because=reasons.of("closed_by_because", by="test", why="the board was swapped"),
        actor="user:ann",
        now=world.now,
    )
    world.work()
    assert world.kube.get_node(NODE).unschedulable
    assert not world.kube.get_node("gpu-2").unschedulable
    world.uninstall()


def test_inv_15_a_report_that_is_sent_again_after_an_outage_counts_once(world: World) -> None:
    """The agent's spool: the first try was taken in, its answer lost, and it comes again an outage later."""
    batch = "0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a11"
    world.report(xid(62, sequence=7), batch=batch)
    world.now += timedelta(days=2)
    assert world.report(xid(62, sequence=7), batch=batch).duplicates == 1
    world.work()
    assert (Incident.objects.get().count, Rescue.objects.count()) == (1, 1)


def test_inv_17_an_attempt_is_reserved_before_the_call_and_a_crash_leaves_it_counted(world: World) -> None:
    world.fault(62)
    kill_at(world.kube, "ensure_job", call=1, after=True)
    before = 0  # attempts that only waited for evidence
    while not work(world):
        before = world.step("reboot").attempts
        world.now += timedelta(seconds=1)
    step = world.step("reboot")
    assert (step.state, step.attempts, step.started_at is not None) == ("running", before + 1, True)
    assert step.progress["boot_id"] == world.kube.get_node(NODE).boot_id
    world.work()
    after = world.step("reboot")
    assert (after.attempts, after.started_at) == (before + 2, step.started_at)
    assert len(world.kube.objects.list("Job")) == 1
    situation = queries.situation(world.node(), Incident.objects.get(), now=world.now)
    assert situation.node.recent_rescues == 1


def test_inv_17_unreadable_marks_stop_the_rescue(world: World) -> None:
    """A node whose mark nobody understands counts as taken back by hand: the rescue stops, nothing is evicted."""
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    world.work()
    asked = len(world.kube.called("evict"))
    world.kube.objects.merge("Node", "", NODE, {"metadata": {"annotations": {marks.ANNOTATION: "{broken"}}})
    world.pass_time(5)
    assert world.rescue().state == "cancelled"
    assert len(world.kube.called("evict")) == asked


def test_inv_23_the_marks_of_a_node_follow_its_active_faults(db: None) -> None:
    """One of two faults recovers: the node stays out; both have: nothing of the portal is left on it."""
    world = World(policy=BOTH)
    world.fault(79)
    world.fault(62, pci=OTHER_PCI)
    world.work()
    shown = world.kube.get_node(NODE)
    assert (shown.unschedulable, shown.labels[marks.STATE_LABEL]) == (True, "quarantined")
    first = Incident.objects.get(code="79")
    incidents.close(
        [first.pk],
        because=reasons.of("closed_by_because", by="test", why="the cable was reseated"),
        actor="user:ann",
        now=world.now,
    )
    world.pass_time(20)  # the other one is judged again, and its rescue takes the node over
    world.until_reboot_is_asked()
    assert world.kube.get_node(NODE).labels[marks.STATE_LABEL] == "rebooting"
    world.reboot()
    world.until("succeeded")
    shown = world.kube.get_node(NODE)
    assert (shown.unschedulable, marks.STATE_LABEL in shown.labels) == (False, False)
    assert set(Incident.objects.values_list("state", flat=True)) == {"closed"}
    world.uninstall()


def test_inv_34_with_the_api_server_away_nothing_advances_and_no_node_is_called_not_ready(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.fault(62)
    world.work()
    stood = {step.name: step.state for step in world.rescue().steps.all()}
    for verb in ("get_node", "apply_node", "evict", "list_pods", "ensure_job"):
        world.kube.fail(verb, port.Unavailable("no route to host"), times=10_000)
    world.kube.finish_deletions()
    for _ in range(10):
        world.now += timedelta(seconds=30)
        world.work()
    assert {step.name: step.state for step in world.rescue().steps.all()} == stood
    assert world.rescue().state == "waiting"
    assert code_of(world.step("drain").because) == "cluster_unavailable"
    assert world.node().ready
    assert list(Incident.objects.values_list("code", flat=True)) == ["62"]
