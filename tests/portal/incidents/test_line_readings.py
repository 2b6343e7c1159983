"""What a line of the kernel says is stored with the incident, and read again only where an older portal wrote it."""

import importlib
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.apps import apps

from kcover import wire
from kcover.faults import line_reading
from kcover.faults.fault import Fault
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.queries import situations
from tests.portal.incidents.conftest import report, xid

pytestmark = pytest.mark.django_db
LINE = "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 11012, Non-fatal, Link 30 LTSSM Fault Up"
WORSE = LINE.replace("Non-fatal", "Fatal")


def sxid(message: str) -> Fault:
    return Fault(kind="sxid", code=11012, pci="0000:c1:00.0", source="kmsg", message=message)


@pytest.fixture
def incident(deliver: Callable[..., wire.Answer], now: datetime) -> Incident:
    deliver(report(sxid(LINE), now=now))
    return Incident.objects.get()


def is_fatal(incident: Incident, now: datetime) -> bool | None:
    """What a decision about the incident goes by."""
    incident.refresh_from_db()
    node = Node.objects.select_related("cluster").get()
    return situations.situation(node, incident, now=now, rules=()).fault.fatal


def test_the_reading_is_stored_and_follows_a_worse_line(
    deliver: Callable[..., wire.Answer], incident: Incident, now: datetime
) -> None:
    assert incident.line_reading == line_reading.read(LINE).to_json(LINE)
    assert is_fatal(incident, now) is False
    later = now + timedelta(minutes=1)
    deliver(report(sxid(WORSE), now=later), at=later)
    assert is_fatal(incident, now) is True
    assert incident.line_reading == line_reading.read(WORSE).to_json(WORSE)


def test_a_message_that_is_no_line_has_a_reading_too(deliver: Callable[..., wire.Answer], now: datetime) -> None:
    deliver(report(xid(message="reported without its line"), now=now))
    row = Incident.objects.get()
    assert row.line_reading.keys() == {"of", "by"}
    assert row.line == line_reading.LineReading()


def test_rows_of_an_older_portal_are_parsed_when_needed(incident: Incident, now: datetime) -> None:
    Incident.objects.update(line_reading={})  # an incident that it opened
    assert is_fatal(incident, now) is False
    Incident.objects.update(line_reading=line_reading.read(LINE).to_json(LINE), message=WORSE)  # one that it changed
    assert is_fatal(incident, now) is True


def test_the_migration_reads_the_open_incidents(incident: Incident) -> None:
    before = incident.line_reading
    Incident.objects.update(line_reading={})
    importlib.import_module("kcover_portal.incidents.migrations.0008_read_lines").read(apps, None)
    incident.refresh_from_db()
    assert incident.line_reading == before != {}
