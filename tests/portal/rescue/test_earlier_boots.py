"""Invariant 15: nothing is done about a fault of an earlier boot, whatever ended the boot and however late the report
is.
"""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from kcover.faults.device import named
from kcover.faults.fault import Fault
from kcover.sources import kube_events
from kcover.sources.observation import Observation, ObservationBatch
from kcover_portal.fleet import services as fleet
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.operate import kube_event_watch
from kcover_portal.preflight import services as preflight
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.sources import services as sources
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import intake
from tests.codes import code_of
from tests.portal.preflight.test_runs import raw
from tests.portal.rescue.test_approvals import GATED, vote
from tests.portal.rescue.world import CORDON, NODE, PCI, World

pytestmark = pytest.mark.django_db
XID = Fault(kind="xid", code=62, pci=PCI, source="kmsg", sequence=7)

HEAL_PREFLIGHT = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: preflight}
spec:
  rules:
    - priority: 20
      errorCode: ["62"]
      actions: &reboot [{name: cordon}, {name: drain}, {name: reboot, attribute: {unCordon: "true"}}]
    - {priority: 10, match: {kinds: [preflight]}, actions: *reboot}
"""

SILENT = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: silent}
spec: {rules: [{priority: 10, match: {kinds: [agent]}, actions: [{name: cordon}]}]}
"""


@pytest.fixture
def make():
    made = []

    def world(**more):
        made.append(World(**more))
        return made[-1]

    yield world
    for one in made:
        one.uninstall()


def rebooted_by_people(world):
    world.kube.reboot(NODE)
    world.sync()
    world.report()


def whys():
    """The newest decision and its reasons."""
    decision = Decision.objects.latest("pk")
    return decision.answer, [one.code for one in decision.reasons]


def jobs(world):
    return len(world.kube.called("ensure_job"))


def test_inv_15_a_report_of_the_boot_before_isolates_no_node(make):
    world = make()
    old = world.kube.get_node(NODE).boot_id
    world.now += timedelta(hours=2)
    rebooted = world.kube.reboot(NODE)
    world.sync()
    world.report(XID, boot_id=old)
    world.report(boot_id=rebooted)
    for _ in range(5):
        world.pass_time(2)
    assert not Rescue.objects.exists()
    decision = Decision.objects.get()
    assert (decision.answer, [one.code for one in decision.reasons]) == ("none", ["rule_matches", "rebooted_since"])


def test_inv_15_a_fault_of_this_boot_is_acted_on_whichever_report_is_late(make):
    world = make(policy=CORDON)
    old = world.kube.get_node(NODE).boot_id
    rebooted_by_people(world)
    world.report(XID, boot_id=old)
    world.work()
    assert not Rescue.objects.exists()
    world.report(XID)
    world.report(Fault(kind="xid", code=62, pci=PCI, source="kmsg", sequence=8), boot_id=old)
    world.work()
    assert world.kube.get_node(NODE).unschedulable


def test_a_report_of_a_boot_that_the_watch_has_not_seen_waits_for_the_watch(make):
    world = make()
    world.kube.reboot(NODE)  # the watch has not shown it yet
    world.report(XID)
    for _ in range(3):
        world.work()
        world.now += timedelta(seconds=20)
    assert not Rescue.objects.exists()
    assert whys() == ("hold", ["rule_matches", "boot_not_shown"])
    world.until("waiting", step="reboot")  # and now it does
    assert world.until_reboot_is_asked()
    world.reboot()
    world.until("succeeded")
    assert jobs(world) == 1


def rebooted_twice_unseen(world):
    """While the portal is away; returns the boot in the middle, which nobody showed it."""
    between = world.kube.reboot(NODE)
    world.kube.reboot(NODE)
    world.now += timedelta(hours=2)
    world.sync()
    return between


def test_a_report_from_an_unseen_boot_isolates_nothing(make):
    world = make()
    between = rebooted_twice_unseen(world)
    world.report(XID, boot_id=between)
    for _ in range(5):
        world.pass_time(20)
    assert whys() == ("hold", ["rule_matches", "boot_not_shown"])
    world.report()
    for _ in range(5):
        world.pass_time(20)
    assert whys() == ("none", ["rule_matches", "rebooted_since"])
    assert not Rescue.objects.exists()
    assert not world.kube.writes


def test_inv_32_a_boot_that_is_never_seen_is_not_waited_for_forever(make):
    world = make()
    world.report(XID, boot_id=rebooted_twice_unseen(world))
    world.work()
    world.now += timedelta(days=30)
    world.work()
    assert whys() == ("none", ["rule_matches", "boot_not_shown", "expired"])
    assert Incident.objects.get().decide_at is None


@pytest.mark.parametrize("late", [False, True])
def test_a_fault_of_this_boot_does_not_wait_for_an_earlier_boot(make, late):
    world = make(policy=CORDON)
    seen = [(XID, rebooted_twice_unseen(world)), (replace(XID, sequence=8), world.kube.get_node(NODE).boot_id)]
    for fault, boot in reversed(seen) if late else seen:
        world.report(fault, boot_id=boot)
    world.work()
    assert world.kube.get_node(NODE).unschedulable


def test_an_agent_that_did_not_come_back_from_a_reboot_is_silent_in_this_boot(make):
    world = make(policy=SILENT)
    old = world.kube.get_node(NODE).boot_id
    rebooted_by_people(world)
    world.report(Fault(kind="agent", code="silent", source="portal"), boot_id=old)
    world.work()
    assert world.kube.get_node(NODE).unschedulable


def test_inv_15_people_reboot_the_node_while_its_rescue_waits_for_approval(make):
    world = make(policy=GATED % 1)
    world.fault(62)
    world.work()
    world.pass_time(600)
    rebooted_by_people(world)
    vote(world, "ann")
    world.until("waiting", step="verify")
    world.pass_time()
    world.report()
    world.until("succeeded")
    assert jobs(world) == 0
    assert code_of(world.step("reboot").because) == "reboot_confirmed"


def test_inv_15_people_reboot_the_node_while_its_drain_waits(make):
    world = make()
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    world.work()
    rebooted_by_people(world)
    world.kube.objects.remove("PodDisruptionBudget", "default", "keep")
    for _ in range(3):
        world.pass_time(30)
        world.report()
    world.until("succeeded")
    assert jobs(world) == 0
    assert not Incident.objects.filter(state="open").exists()


def test_a_node_that_people_rebooted_after_a_reboot_request_is_not_rebooted_again(make):
    world = make(policy="")
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    services.request(world.node(), "reboot", actor="user:ann", reason="", now=world.now)
    world.work()
    rebooted_by_people(world)
    world.kube.objects.remove("PodDisruptionBudget", "default", "keep")
    world.until("done", step="reboot", seconds=10)
    assert jobs(world) == 0


def test_a_second_round_ends_the_boot_of_the_first(make):
    world = make()
    world.fault(62)
    world.until_reboot_is_asked()
    world.kube.reboot(NODE)
    world.until("waiting", step="verify")
    world.fault(62)
    world.pass_time()
    again = world.rescue().steps.filter(name="reboot").last()
    assert again.progress["boot_id"] == world.kube.get_node(NODE).boot_id
    for _ in range(10):
        world.pass_time()
    assert jobs(world) == 2


def test_inv_32_a_rescue_held_by_a_pause_continues_on_the_current_state(make):
    world = make()
    world.fault(62)
    world.kube.add_pod("default", "train-0", node=NODE)
    world.work()
    fleet.pause(cluster=world.cluster, reason="", actor="user:ann", now=world.now)
    world.pass_time(60)
    assert (world.rescue().state, code_of(world.rescue().because)) == ("waiting", "paused")
    world.now += timedelta(days=2)
    rebooted_by_people(world)
    fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now)
    world.until("waiting", step="verify")
    world.pass_time()
    world.report()
    assert world.until("succeeded").outcome == "healed"
    assert jobs(world) == 0


def test_inv_32_a_rescue_whose_fault_was_closed_in_a_pause_takes_no_work_away(make):
    world = make()
    world.fault(62)
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.work()
    fleet.pause(cluster=world.cluster, reason="", actor="user:ann", now=world.now)
    incidents.close_by_hand(Incident.objects.get(), actor="user:ann", reason="mended", now=world.now)
    world.now += timedelta(days=2)
    world.kube.objects.remove("PodDisruptionBudget", "default", "keep")
    fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now)
    for _ in range(5):
        world.pass_time(30)
    assert (world.rescue().state, world.rescue().outcome) == ("cancelled", "void")
    assert jobs(world) == 0
    assert len(world.kube.list_pods(node=NODE)) == 1


def told_by_event(world, *, at):
    """Reads an Event that reports a node's failed preflight."""
    sources.make_watched_sources(world.now)
    world.kube.add_pod("default", "job-0", node=NODE, labels={"training.kubeflow.org/job-name": "job"})
    event = kube_events.SeenEvent(
        namespace="default",
        name="preflight",
        uid="e1",
        reason="Error",
        type="Warning",
        message=json.dumps(raw(1, gpu_check=2)),
        count=1,
        involved_kind="Node",
        involved_name=NODE,
        involved_namespace="",
        annotations={"kcover.io/preflight-workload": "job"},
        component="kcover",
        last_at=at,
        resource_version="7",
    )
    sources.EventFeed(world.cluster, kube_event_watch.take_preflight).feed([event], now=world.now)
    return preflight.report_verdicts(now=world.now)


@pytest.mark.parametrize(("seconds", "asked"), [(-20, 1), (3, 1), (20, 2), (None, 2)])  # from the reboot
def test_inv_15_a_late_preflight_report_of_the_boot_before_reboots_no_node(make, seconds, asked):
    world = make(policy=HEAL_PREFLIGHT)
    world.fault(62)
    world.until_reboot_is_asked()
    booted_at = world.now
    world.reboot()
    world.until("succeeded")
    world.now += timedelta(minutes=5)
    at = None if seconds is None else booted_at + timedelta(seconds=1 + seconds)
    assert told_by_event(world, at=at) == 1
    for _ in range(45):
        world.pass_time()
    assert jobs(world) == asked
    incident = Incident.objects.get(kind="preflight")
    assert [one.late_seconds is not None for one in incident.occurrences.all()] == [asked == 1]


@pytest.mark.parametrize(("uptime", "asked"), [(timedelta(days=14), 1), (timedelta(minutes=5), 2), (None, 2)])
def test_inv_15_a_line_of_the_boot_before_dated_by_its_arrival_reboots_no_node(make, uptime, asked):
    world = make()
    world.fault(62)
    world.until_reboot_is_asked()
    world.reboot()
    world.until("succeeded")
    world.now += timedelta(minutes=5)
    loki = sources.SOURCES.make(
        Source(name="loki", kind="loki", cluster=world.cluster),
        {"url": "http://logs", "token": ""},
        actor="test",
        now=world.now,
    )
    line = Observation(
        path="", key="1", node=NODE, kind="xid", code=62, device=named(pci=PCI), seen_at=world.now, uptime=uptime
    )
    intake.take(loki, ObservationBatch(observations=(line,)), now=world.now)
    for _ in range(45):
        world.pass_time()
    assert jobs(world) == asked
