"""Invariant 55: what is told late, of the time before the present boot or before a repair, does nothing."""

from datetime import datetime, timedelta

import pytest

from kcover import reasons
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.queries import boots
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.rescue.models import Decision, Rescue
from tests.codes import codes_of, found_in
from tests.portal.rescue import agents, test_actions_reset
from tests.portal.rescue.world import NODE, PCI, World

pytestmark = pytest.mark.django_db
OTHER_RULES = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: others}
spec:
  rules:
    - priority: 20
      match: {kinds: [alert]}
      actions: [{name: cordon}]
    - priority: 10
      errorCode: ["62"]
      match: {minCount: 2, within: 1h}
      actions: [{name: cordon}]
"""
SECOND = timedelta(seconds=1)
XID = {"kind": "xid", "code": 62, "alias": ""}


def tell(world: World, at: datetime, **given: object) -> None:
    """A source reports a fault with its own time."""
    fields = {"kind": "gpud", "code": "error-xid", "alias": "xid 62", "pci": PCI, "source": "gpud"}
    fields |= {"earliest": at - 5 * SECOND, **given}
    seen = incidents.SourceFault(witness="gpud", seen_at=at, severity="fatal", **fields)
    incidents.ingest_observed("gpud", [(world.node(), seen)], [], now=world.now)


def rebooted(world: World) -> datetime:
    """The agent reports a fault, and the node is rebooted for it; returns the time of the fault."""
    broken = world.now
    world.fault(62)
    world.until_reboot_is_asked()
    world.now += 40 * SECOND
    world.reboot()
    world.until("waiting", step="verify")
    return broken


def healed(world: World) -> Rescue:
    """The only rescue, once the node works again after one reboot."""
    world.report()
    found = world.until("succeeded")
    for _ in range(10):
        world.pass_time(10)
    assert (Rescue.objects.count(), len(world.kube.called("ensure_job"))) == (1, 1)
    assert not world.kube.get_node(NODE).unschedulable
    return found


def test_inv_55_a_late_report_during_the_verification_starts_nothing_over(make) -> None:
    world = make()
    broken = rebooted(world)
    for _ in range(3):
        tell(world, broken)
        world.pass_time(2)
    assert healed(world).steps.count() == world.rescue().steps.filter(round=1).count()
    told = found_in(world.step("verify").because, "late_report")
    assert dict(told.params)["source"] == "gpud"
    assert set(Occurrence.objects.filter(witness="gpud").values_list("incident__state", flat=True)) == {"closed"}


def test_inv_55_a_late_report_after_the_rescue_stays_with_the_closed_incident(make) -> None:
    world = make()
    broken = rebooted(world)
    healed(world)
    tell(world, broken)
    tell(world, broken + 3 * SECOND, kind="health", code="XidCheck/62")
    world.work()
    assert not Incident.objects.filter(state="open").exists()
    assert Incident.objects.get().occurrences.exclude(late_seconds=None).count() == 2


def test_inv_55_a_fault_from_before_an_unseen_reboot_is_kept_and_starts_no_rescue(make) -> None:
    world = make(OTHER_RULES)
    world.now += 3600 * SECOND
    world.kube.reboot(NODE)
    world.sync()
    world.report()
    tell(world, world.now - 60 * SECOND, kind="alert", code="Lost", alias="")
    for _ in range(10):
        world.pass_time(10)
    [decision] = Decision.objects.all()
    assert (decision.answer, [one.code for one in decision.reasons]) == ("none", ["rule_matches", "rebooted_since"])
    assert (Incident.objects.get().state, Rescue.objects.count()) == ("open", 0)
    assert not world.kube.get_node(NODE).unschedulable


def test_inv_55_a_late_report_does_not_count_as_a_repeat(make) -> None:
    """The rule wants two faults within an hour: the late ones are the one that was there before the reboot."""
    world = make(OTHER_RULES)
    broken = world.now
    world.kube.reboot(NODE)
    world.now += 90 * SECOND
    world.sync()
    world.report()
    for _ in range(3):
        tell(world, broken, **XID)
    world.now += 60 * SECOND
    tell(world, world.now, **XID)
    world.work()
    assert not Rescue.objects.exists()
    world.now += 60 * SECOND
    tell(world, world.now, **XID)
    world.pass_time(10)
    assert world.kube.get_node(NODE).unschedulable


def test_inv_55_a_fault_of_the_new_boot_that_a_source_reports_starts_the_plan_over(make) -> None:
    """The other side: the second round still comes where the fault did come back."""
    world = make()
    rebooted(world)
    world.pass_time(6)
    tell(world, world.now, **XID)
    world.pass_time(10)
    assert world.rescue().steps.filter(round=2).exists()


def test_inv_55_a_report_from_before_a_reset_starts_nothing_over(make) -> None:
    world = make(test_actions_reset.POLICY)
    agents.comes_up(world)
    broken = world.now
    world.fault(62)
    agents.answers(world, test_actions_reset.asked(world), message="GPU 0 was successfully reset.")
    world.until("waiting", step="verify")
    world.now += 5 * SECOND
    for _ in range(3):
        tell(world, broken)
        world.pass_time(2)
    world.report()
    assert world.until("succeeded").outcome == "healed"
    tell(world, broken)
    for _ in range(5):
        world.pass_time(10)
    assert len(agents.commands("reset_gpu")) == 1
    [incident] = Incident.objects.all()
    assert (incident.state, codes_of(incident.closed_because)) == ("closed", ["incident_verified"])
    assert Rescue.objects.count() == 1


STATE = {"kind": "alert", "code": "GpuLost", "alias": "xid 62", "source": "alertmanager", "doubt": 125 * SECOND}


def standing(world: World) -> datetime:
    """An alert that began 30 s after the new boot was shown, and may be one of the fault before it."""
    rebooted(world)
    [shown] = boots.boots_of(world.node()).boots[:1]
    world.now = max(world.now, shown.since + 31 * SECOND)
    tell(world, shown.since + 30 * SECOND, earliest=shown.since - 95 * SECOND, **STATE)
    return shown.since


def test_inv_55_a_standing_state_in_doubt_belongs_to_the_present_boot(make) -> None:
    world = make()
    since = standing(world)
    world.report()
    while world.now < since + 120 * SECOND:
        world.pass_time(5)
        world.report()
        assert world.step("verify").state == "waiting"
    assert found_in(world.step("verify").because, "verify_waits_for_doubt")
    assert Incident.objects.filter(state="open").exists()
    assert not world.rescue().steps.filter(round=2).exists()
    world.pass_time(10)
    world.pass_time(5)
    assert world.rescue().steps.filter(round=2).exists()


def test_inv_55_a_state_in_doubt_that_ends_belongs_to_the_boot_before(make) -> None:
    world = make()
    standing(world)
    world.pass_time(40)
    world.report()
    world.pass_time(1)
    assert world.step("verify").state == "waiting"
    [told] = Occurrence.objects.filter(witness="gpud")
    passed = incidents.PassedCheck(node=NODE, kind="alert", check="GpuLost", at=world.now)
    incidents.ingest_observed("gpud", [], [(world.node(), passed)], now=world.now)
    healed(world)
    told.refresh_from_db()
    assert told.late_seconds is not None
    assert told.boot_id != world.node().boot_id
    assert not Incident.objects.filter(state="open").exists()


def test_inv_55_a_state_in_doubt_reported_after_the_rescue_stays_open(make) -> None:
    world = make()
    rebooted(world)
    [shown] = boots.boots_of(world.node()).boots[:1]
    world.now = max(world.now, shown.since + 31 * SECOND)
    world.report()
    world.until("succeeded")
    tell(world, shown.since + 30 * SECOND, earliest=shown.since - 95 * SECOND, **STATE)
    assert Incident.objects.filter(state="open").count() == 1
    world.pass_time(5)
    assert Rescue.objects.count() == 1
    world.pass_time(150)
    world.pass_time(5)
    assert Incident.objects.get(state="open").boot_id == world.node().boot_id


def test_inv_55_a_fault_of_the_new_boot_is_not_closed_with_the_repaired_one(make) -> None:
    """It happened after the boot was shown, and before the step that waits for the node had ended."""
    world = make()
    rebooted(world)
    [shown] = boots.boots_of(world.node()).boots[:1]
    healed(world)
    [old] = Incident.objects.all()
    Incident.objects.update(repaired_at=old.repaired_at + 60 * SECOND)
    tell(world, shown.since + 12 * SECOND, **XID)
    assert Incident.objects.get(state="open").boot_id == world.node().boot_id


@pytest.mark.parametrize(("seconds", "opened"), [(-1, 0), (100, 1)])
def test_inv_55_without_a_repair_only_an_own_time_makes_a_report_late(make, seconds, opened) -> None:
    world = make()
    world.fault(62)
    row = Incident.objects.get()
    because = reasons.of("incident_verified", rescue="1")
    world.now += 60 * SECOND
    incidents.close([row.pk], because=because, actor="test", now=world.now)
    at = (row.last_at if seconds < 0 else world.now) + seconds * SECOND
    world.now += 150 * SECOND
    told = {"kind": "alert", "code": "GpuLost", "source": "alertmanager", "doubt": 125 * SECOND}
    tell(world, at, earliest=at - 125 * SECOND, **told)
    assert Incident.objects.filter(state="open").count() == opened


CLOSED = (
    reasons.of("incident_verified", rescue="1"),
    reasons.of("uncordoned_by_hand", node=NODE),
    reasons.with_why("node_taken_back", "looked at", by="user:ada"),
    reasons.with_why("closed_by", "", by="user:ada"),
)


@pytest.mark.parametrize("because", CLOSED, ids=lambda because: because.code)
@pytest.mark.parametrize(("seconds", "opened"), [(-10, 0), (10, 1)])
def test_inv_55_a_last_xid_without_a_time_belongs_between_two_readings(make, seconds, opened, because) -> None:
    """Nothing was repaired, and the incident is closed when the source is read again."""
    world = make()
    world.fault(62)
    row = Incident.objects.get()
    world.now += 3 * SECOND
    incidents.close([row.pk], because=because, actor="test", now=world.now)
    world.now += 20 * SECOND
    tell(world, world.now, earliest=row.last_at + seconds * SECOND, **XID)
    assert Incident.objects.filter(state="open").count() == opened


def test_inv_55_a_late_line_after_a_person_released_the_node_is_not_a_new_fault(make) -> None:
    world = make()
    world.fault(62)
    row = Incident.objects.get()
    world.now += 3 * SECOND
    because = reasons.with_why("node_taken_back", "looked at", by="user:ada")
    incidents.close([row.pk], because=because, actor="test", now=world.now)
    world.now += 2 * SECOND
    tell(world, row.last_at, **XID)
    row.refresh_from_db()
    assert (row.state, row.count, Incident.objects.count()) == ("closed", 2, 1)
    state = {"kind": "alert", "code": "GpuLost", "source": "alertmanager", "doubt": 125 * SECOND}
    tell(world, row.last_at, **state)  # it may yet last
    assert Incident.objects.filter(state="open").count() == 1


def test_inv_15_a_fault_from_the_time_of_an_outage_waits_for_a_person(make) -> None:
    """A person reboots the node while the portal is away; a source tells afterwards what happened meanwhile."""
    world = make()
    world.report()
    world.sync()
    fleet.note_watch(world.cluster, now=world.now)
    away = world.now
    world.now += 3600 * SECOND
    world.kube.reboot(NODE)
    world.sync()
    tell(world, away + 1800 * SECOND, **XID)
    world.report()
    for _ in range(10):
        world.pass_time(10)
    decision = Decision.objects.latest("pk")
    assert (decision.answer, [one.code for one in decision.reasons][-1]) == ("hold", "boot_not_shown")
    assert not Rescue.objects.exists()
