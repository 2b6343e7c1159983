"""Invariant 55: what is told late changes nothing about the present boot, and no doubt is passed over or lost."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover import reasons
from kcover.faults.fault import Fault
from kcover_portal.fleet.queries import boots
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.incidents.services import doubtful_states
from kcover_portal.rescue import services
from kcover_portal.rescue.decide import decisions
from kcover_portal.rescue.models import Decision, Rescue
from tests.invariants.test_inv_boots import OTHER_RULES, SECOND, STATE, XID, rebooted, tell
from tests.portal.rescue import agents, test_actions_reset, test_actions_validate
from tests.portal.rescue.validation_turns import answer, turn
from tests.portal.rescue.world import CORDON, NODE, World

pytestmark = pytest.mark.django_db
ANY_FAULT = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: anyfault}
spec: {rules: [{priority: 10, actions: [{name: cordon}]}]}
"""
WORDS = "(0x00000408 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
LINK = f"NVRM: Xid (PCI:0000:4e:00): 145, RLW_SRC_TRACK %s XC1 i0 Link 17 {WORDS}"


def test_inv_55_a_late_fatal_line_leaves_the_weight_of_the_present_fault(make) -> None:
    """The boot before had a fatal fault that nobody heard of; the present one has an event of a program."""
    world = make(ANY_FAULT)
    world.now += 3600 * SECOND
    world.kube.reboot(NODE)
    world.sync()
    world.report()
    begun = world.now
    world.now += 60 * SECOND
    world.fault(145, message=LINK % "Nonfatal")
    world.work()
    [before] = Incident.objects.values("severity", "is_user_fault", "message", "boot_id", "drill")
    world.now += 60 * SECOND
    tell(world, begun - 600 * SECOND, kind="xid", code=145, alias="", message=LINK % "Fatal", source="loki")
    world.work()
    [after] = Incident.objects.values("severity", "is_user_fault", "message", "boot_id", "drill")
    assert after == before
    world.now += 60 * SECOND
    world.fault(145, message=LINK % "Nonfatal")
    world.pass_time(10)
    assert not Rescue.objects.exists()
    assert not world.kube.get_node(NODE).unschedulable


def reset(make) -> World:
    """The world after a GPU was reset, and the rescue has verified it."""
    world = make(test_actions_reset.POLICY)
    agents.comes_up(world)
    world.fault(62)
    agents.answers(world, test_actions_reset.asked(world), message="GPU 0 was successfully reset.")
    world.until("waiting", step="verify")
    world.now += 5 * SECOND
    for _ in range(3):
        world.pass_time(2)
    world.report()
    assert world.until("succeeded").outcome == "healed"
    world.now += 60 * SECOND
    return world


def test_inv_04_a_fault_that_a_person_ends_while_it_is_decided_opens_no_rescue(make, monkeypatch) -> None:
    world = make(CORDON)
    world.fault(62)
    [incident] = Incident.objects.all()
    answers = decisions._answers

    def taken_back(*given: object, **named: object) -> object:
        incidents.close([incident.pk], because=reasons.of("closed_by", by="user:ann"), actor="user:ann", now=world.now)
        return answers(*given, **named)

    monkeypatch.setattr(decisions, "_answers", taken_back)
    services.decide(incident.pk, now=world.now)
    assert (Rescue.objects.count(), Decision.objects.count()) == (0, 0)
    assert not world.kube.get_node(NODE).unschedulable


@pytest.mark.parametrize("ends", [False, True])
def test_inv_55_an_alert_that_begins_after_a_reset_is_decided_if_it_stands(make, *, ends: bool) -> None:
    world = reset(make)
    begun = world.now
    tell(world, begun, **{**STATE, "earliest": begun - 125 * SECOND})
    [new] = Incident.objects.filter(state="open")
    world.pass_time(5)
    new.refresh_from_db()
    assert new.decided_at is None
    if ends:
        passed = incidents.PassedCheck(node=NODE, kind="alert", check="GpuLost", at=world.now)
        incidents.ingest_observed("gpud", [], [(world.node(), passed)], now=world.now)
    for _ in range(15):
        world.pass_time(10)
    new.refresh_from_db()
    assert (new.state, new.decided_at is None) == (("closed", True) if ends else ("open", False))


def test_inv_55_an_alert_from_before_a_reset_opens_no_incident(make) -> None:
    world = reset(make)
    tell(world, world.now - 120 * SECOND, **STATE)
    assert not Incident.objects.filter(state="open").exists()


@pytest.mark.parametrize(("hours", "acted"), [((1, 6), False), ((5.5, 6), True)])
def test_inv_55_late_reports_of_a_source_count_at_their_own_times(make, hours, acted) -> None:
    """The rule wants two faults within an hour. The source was away for six hours, in one boot."""
    world = make(OTHER_RULES)
    world.report()
    start = world.now
    world.now += 6 * 3600 * SECOND
    world.report()
    for hour in hours:
        tell(world, start + hour * 3600 * SECOND, **XID)
    world.pass_time(10)
    world.pass_time(600)
    assert world.kube.get_node(NODE).unschedulable is acted


def in_doubt(world: World) -> None:
    """A state of which it is open whether it is of the boot that the agent was just seen in."""
    shown = boots.boots_of(world.node()).boots[0].since
    assert shown is not None
    world.now = max(world.now, shown + 31 * SECOND)
    tell(world, shown + 30 * SECOND, earliest=shown - 95 * SECOND, **STATE)


def test_inv_55_a_worker_that_dies_at_the_end_of_a_doubt_loses_no_fault(make, monkeypatch) -> None:
    world = make()
    rebooted(world)
    world.report()
    world.until("succeeded")
    in_doubt(world)
    world.pass_time(60)
    assert Incident.objects.get(state="open").decide_at is None
    world.now += 200 * SECOND

    def dies(*_given: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(doubtful_states.doorbell, "ring", dies)
        with pytest.raises(SystemExit):
            incidents.settle_doubt(now=world.now)
    assert Occurrence.objects.filter(doubt_until__isnull=False).exists()
    incidents.settle_doubt(now=world.now)
    row = Incident.objects.get(state="open")
    assert (row.boot_id, row.decide_at) == (world.node().boot_id, world.now)


def test_inv_55_a_validation_that_passes_returns_no_node_that_is_in_doubt(db: None) -> None:
    world = World(policy=test_actions_validate.POLICY, nodes=2)
    agents.comes_up(world)
    world.fault(79)
    world.until_reboot_is_asked()
    world.now += 40 * SECOND
    world.reboot()
    world.report()
    for _ in range(200):
        turn(world)
        if any(one.state == "offered" for one in agents.commands("run_check")):
            break
    in_doubt(world)
    answer(world)
    step = world.step("validate")
    assert (step.state, step.because["code"]) == ("waiting", "verify_waits_for_doubt")
    assert world.kube.get_node(NODE).unschedulable
    turn(world, 300)
    turn(world)
    assert world.rescue().outcome == "failed_validation"
    world.uninstall()


def test_inv_55_incidents_of_a_node_are_locked_in_the_order_of_their_keys(make) -> None:
    """Closing locks them so. A report that names them in another order would wait for it and be waited for."""
    world = make("")
    for pci in ("0000:4e:00", "0000:5e:00"):
        world.fault(62, pci=pci)
    keys = {row.device: row.pk for row in Incident.objects.all()}
    with CaptureQueriesContext(connection) as seen:
        world.report(*(Fault(kind="xid", code=62, pci=pci, source="kmsg") for pci in ("0000:5e:00", "0000:4e:00")))
    updated = [
        pk
        for query in seen.captured_queries
        for pk in keys.values()
        if query["sql"].startswith('UPDATE "incidents_incident"') and f'"id" = {pk} ' in query["sql"]
    ]
    assert updated == sorted(keys.values())
