"""A thousand lines in one report cost as one, and rows stay bounded without losing what rules ask for."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover.faults.fault import Fault
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.incidents.services import occurrences, record_faults
from tests.portal.rescue.world import CORDON, World

pytestmark = pytest.mark.django_db

LINK = "NVRM: Xid (PCI:0000:4e:00): 144, SAW_MVB Nonfatal XC0 i0 Link -1"


@pytest.fixture
def world():
    return World(policy=CORDON)


def line(code=62, *, sequence=None, message="", drill=False, pci="0000:4e:00"):
    return Fault(kind="xid", code=code, pci=pci, source="kmsg", sequence=sequence, message=message, drill=drill)


def test_a_thousand_lines_cost_as_many_statements_as_one(world):
    world.report(line(sequence=1))
    costs = []
    for lines in ([line(sequence=2)], [line(sequence=number) for number in range(3, 1003)]):
        with CaptureQueriesContext(
            connection,
        ) as made:
            world.report(*lines)
        costs.append(len(made))
    assert costs[1] <= costs[0] + 3  # the rows that make room
    assert Incident.objects.get().count == 1_002


def test_lines_of_several_faults_go_to_their_incidents_and_repeats_add_nothing(world):
    lines = [line(sequence=1), line(48, sequence=2), line(sequence=3), line(sequence=1)]
    for _ in range(2):  # another batch about open incidents is accepted
        answer = world.report(*lines)
        assert (answer.accepted, answer.duplicates) == (4, 0)
        assert dict(Incident.objects.values_list("code", "count")) == {"62": 2, "48": 1}


def test_an_incident_has_the_severity_of_its_worst_line(world):
    program, fatal = f"{LINK} (0x00000001 0x00000001)", f"{LINK} (0x00000001 0x00000002)"
    world.report(line(144, message=program), line(144, message=fatal), line(144, message=program))
    together = Incident.objects.values("is_user_fault", "severity", "message").get()
    Incident.objects.all().delete()
    for message in (program, fatal, program):
        world.report(line(144, message=message))
    assert Incident.objects.values("is_user_fault", "severity", "message").get() == together
    assert together["message"] == fatal


def test_one_real_line_among_drills_makes_the_incident_real(world):
    world.report(line(message="a", drill=True), line(message="b"), line(message="c", drill=True))
    assert not Incident.objects.get().drill


def seen_within(world, **window):
    incident = Incident.objects.get()
    assert incident.occurrences.count() == occurrences.MAX_ROWS
    assert sum(incident.occurrences.values_list("count", flat=True)) == incident.count
    lately = incident.occurrences.filter(at__gte=world.now - timedelta(**window))
    return sum(lately.values_list("count", flat=True))


def test_a_window_is_counted_when_the_rows_are_full(world):
    for number in range(occurrences.MAX_ROWS):
        world.report(line(sequence=number))
    world.now += timedelta(hours=1)
    for number in range(3):
        world.report(line(sequence=1_000 + number))
    assert seen_within(world, minutes=1) == 3
    begun = Incident.objects.get().occurrences.order_by("pk").values_list("sequence", flat=True)
    assert list(begun[: occurrences.MAX_FIRST_ROWS]) == list(range(occurrences.MAX_FIRST_ROWS))


def test_a_long_window_of_a_steady_fault_is_counted_to_within_a_few(world):
    for number in range(10):
        world.report(line(sequence=number))
        world.now += timedelta(minutes=1)
    world.now += timedelta(hours=3)
    for number in range(110):  # each half minute
        world.report(line(sequence=1_000 + number))
        world.now += timedelta(seconds=30)
    assert seen_within(world, hours=1) == 110
    assert 55 <= seen_within(world, minutes=30) <= 60
    assert 8 <= seen_within(world, minutes=5) <= 10


def test_the_newest_fault_of_a_witness_keeps_its_time(world):
    """A reset came between the agent's last two lines; a source then tells the fault again."""
    for number in range(occurrences.MAX_ROWS - 1):
        world.report(line(sequence=number))
        world.now += timedelta(minutes=1)
    reset_at = world.now - timedelta(minutes=1) + timedelta(seconds=1)
    world.now = reset_at + timedelta(seconds=1)
    world.report(line(sequence=1_000))
    for second in (10, 20):
        at = world.now + timedelta(seconds=second)
        told = incidents.SourceFault(
            kind="xid", code=62, pci="0000:4e:00", source="loki", witness="loki", seen_at=at, severity="fatal"
        )
        incidents.ingest_observed("loki", [(world.node(), told)], [], now=at)
    assert Incident.objects.count() == 1
    assert Incident.objects.get().occurrences.filter(witness="", at__gte=reset_at).exists()


def test_each_boot_keeps_a_row_within_the_bound(world):
    world.report(line(), boot_id="first")
    for _ in range(2 * occurrences.MAX_ROWS):
        world.report(line(), boot_id="second")
    world.report(line(), boot_id="third")
    assert set(Occurrence.objects.values_list("boot_id", flat=True)) == {"first", "second", "third"}
    for number in range(4 * occurrences.MAX_ROWS):
        world.report(line(), boot_id=f"boot-{number}")
    assert Occurrence.objects.count() <= 2 * occurrences.MAX_ROWS


def test_a_fault_that_waits_to_be_judged_is_rung_for_once_and_again_when_it_is_worse(world, monkeypatch):
    rings = []
    monkeypatch.setattr(record_faults.doorbell, "ring", lambda task, *ids: rings.append(task))
    for _ in range(3):
        world.report(line(144, message=f"{LINK} (0x00000001 0x00000001)"))
    assert rings.count("rescue.decide") == 1
    world.report(line(144, message=f"{LINK} (0x00000001 0x00000002)"))
    assert rings.count("rescue.decide") == 2
