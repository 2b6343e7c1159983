"""A thousand lines in one report cost as one, and rows stay bounded without losing what rules ask for."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover.fault import Fault
from kcover_portal.incidents.models import Event, Incident
from kcover_portal.incidents.services import keeping
from tests.portal.rescue.world import CORDON, World

pytestmark = pytest.mark.django_db


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


def test_lines_of_several_faults_go_to_their_incidents_and_known_ones_are_told(world):
    lines = [line(sequence=1), line(48, sequence=2), line(sequence=3), line(sequence=1)]
    answer = world.report(*lines)
    assert (answer.accepted, answer.duplicates) == (3, 1)
    assert dict(Incident.objects.values_list("code", "count")) == {"62": 2, "48": 1}
    again = world.report(*lines)
    assert (again.accepted, again.duplicates) == (0, 4)


def test_the_worst_line_of_a_report_is_what_the_incident_says(world):
    start = "NVRM: Xid (PCI:0000:4e:00): 144, SAW_MVB Nonfatal XC0 i0 Link -1"
    program, fatal = f"{start} (0x00000001 0x00000001)", f"{start} (0x00000001 0x00000002)"
    world.report(line(144, message=program), line(144, message=fatal), line(144, message=program))
    together = Incident.objects.values("program", "severity", "message").get()
    Incident.objects.all().delete()
    for message in (program, fatal, program):
        world.report(line(144, message=message))
    assert Incident.objects.values("program", "severity", "message").get() == together
    assert together["message"] == fatal


def test_one_real_line_among_drills_makes_it_real(world):
    world.report(line(message="a", drill=True), line(message="b"), line(message="c", drill=True))
    assert not Incident.objects.get().drill


def test_a_window_is_counted_by_the_newest_reports_when_the_rows_are_full(world):
    for number in range(keeping.EVENTS_KEPT):
        world.report(line(sequence=number))
    world.now += timedelta(hours=1)
    for number in range(3):
        world.report(line(sequence=1_000 + number))
    incident = Incident.objects.get()
    lately = incident.events.filter(at__gte=world.now - timedelta(minutes=1))
    assert sum(lately.values_list("count", flat=True)) == 3
    assert incident.events.count() == keeping.EVENTS_KEPT
    assert sum(incident.events.values_list("count", flat=True)) == incident.count
    assert list(incident.events.order_by("pk").values_list("sequence", flat=True)[:3]) == [0, 1, 2]


def test_of_each_boot_a_row_stays_but_rows_stay_bounded(world):
    world.report(line(), boot_id="first")
    for _ in range(2 * keeping.EVENTS_KEPT):
        world.report(line(), boot_id="second")
    world.report(line(), boot_id="third")
    assert set(Event.objects.values_list("boot_id", flat=True)) == {"first", "second", "third"}
    for number in range(4 * keeping.EVENTS_KEPT):
        world.report(line(), boot_id=f"boot-{number}")
    assert Event.objects.count() <= 2 * keeping.EVENTS_KEPT


def test_a_fault_that_waits_to_be_judged_is_rung_for_once(world, monkeypatch):
    rings = []
    monkeypatch.setattr(keeping.doorbell, "ring", lambda task, *ids: rings.append(task))
    for _ in range(3):
        world.report(line())
    assert rings.count("rescue.judge") == 1
