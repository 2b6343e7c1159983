"""Lines of the kernel's log that waited at the agent while a source told of their fault."""

import uuid
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover import reasons, wire
from kcover.faults.fault import Fault
from kcover.values import moments
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import services
from kcover_portal.incidents.models import Incident, Occurrence

NODE, BOOT, PCI = "gpu-1", "boot-1", "0000:4e:00"
MINUTE = timedelta(minutes=1)
LINE = Fault(kind="xid", code=119, pci=PCI, source="kmsg", sequence=7)
HOURS = [timedelta(hours=hours) for hours in (-9, 0, 9)]  # by which the node's clock is wrong


@pytest.fixture
def node(east: Cluster, now: datetime) -> Node:
    return Node.objects.create(cluster=east, name=NODE, boot_id=BOOT, in_cluster=True, created_at=now)


def told_by_loki(node: Node, now: datetime) -> Incident:
    given = {"kind": "xid", "code": 119, "pci": PCI, "source": "loki", "severity": "fatal"}
    seen = services.SourceFault(**given, witness="loki", seen_at=now, earliest=now)
    services.ingest_observed("loki", [(node, seen)], [], now=now)
    return Incident.objects.get()


def report(node: Node, line: Fault, *, boot_id: str = BOOT, wrong: timedelta = timedelta(), now: datetime) -> None:
    """The agent's report of the line, by a clock that is wrong. ``line.seen_at``: the true time."""
    seen_at = line.seen_at + wrong if line.seen_at is not None else None
    told = wire.Report(
        node=NODE,
        boot_id=boot_id,
        batch_id=str(uuid.uuid4()),
        sent_at=now + wrong,
        faults=(replace(line, seen_at=seen_at),),
    )
    services.ingest([services.IncomingReport.of(node.cluster, told, received_at=now)], now=now)


@pytest.mark.parametrize("wrong", HOURS)
@pytest.mark.parametrize("seconds", [-30, 30])  # from the person's act
def test_inv_55_a_line_from_before_a_person_closed_the_fault_opens_no_incident(
    node: Node, now: datetime, seconds: int, wrong: timedelta
) -> None:
    happened, closed = now, now + MINUTE
    row = told_by_loki(node, happened + timedelta(seconds=40))
    services.close([row.pk], because=reasons.with_why("closed_by", "seen", by="ann"), actor="test", now=closed)
    report(node, replace(LINE, seen_at=closed + timedelta(seconds=seconds)), wrong=wrong, now=now + 5 * MINUTE)
    row.refresh_from_db()
    assert (row.state, row.count, Incident.objects.count()) == (("closed", 2, 1) if seconds < 0 else ("closed", 1, 2))
    if seconds < 0:
        late = Occurrence.objects.get(incident=row, witness="")
        assert late.late_reason is not None
        assert (late.told_by, late.late_seconds) == ("agent", 270.0)


@pytest.mark.parametrize("wrong", HOURS)
@pytest.mark.parametrize("seconds", [-10, 10])  # from the reset
def test_inv_55_a_line_from_before_a_verified_reset_opens_no_incident(
    node: Node, now: datetime, seconds: int, wrong: timedelta
) -> None:
    row, reset = told_by_loki(node, now), now + MINUTE
    because = reasons.of("incident_verified", rescue="1")
    services.close([row.pk], because=because, actor="test", now=now + 2 * MINUTE, repaired_at=reset)
    report(node, replace(LINE, seen_at=reset + timedelta(seconds=seconds)), wrong=wrong, now=now + 5 * MINUTE)
    assert Incident.objects.filter(state="open").count() == (0 if seconds < 0 else 1)


@pytest.mark.parametrize(
    "line",
    [
        {"source": "nvml", "sequence": None},
        {"count": 3},
        {"records": ((7, 9),), "count": 3},
        {"seen_at": None},
    ],
)
def test_a_line_without_a_certain_time_is_a_current_fault(node: Node, now: datetime, line: dict[str, Any]) -> None:
    row = told_by_loki(node, now)
    services.close([row.pk], because=reasons.with_why("closed_by", "seen", by="ann"), actor="test", now=now + MINUTE)
    report(node, replace(LINE, **{"seen_at": now, **line}), now=now + 5 * MINUTE)
    assert Incident.objects.filter(state="open").count() == 1


def test_a_line_of_another_boot_is_no_fault_of_the_closed_incident(node: Node, now: datetime) -> None:
    row = told_by_loki(node, now)
    services.close([row.pk], because=reasons.with_why("closed_by", "seen", by="ann"), actor="test", now=now + MINUTE)
    report(node, replace(LINE, seen_at=now), boot_id="boot-2", now=now + 5 * MINUTE)
    assert Incident.objects.get(state="open").boot_id == "boot-2"


def test_a_line_that_waited_adds_to_an_open_incident(node: Node, now: datetime) -> None:
    told_by_loki(node, now)
    report(node, replace(LINE, seen_at=now), now=now + 5 * MINUTE)
    assert (Incident.objects.get().state, Incident.objects.get().count) == ("open", 2)


@pytest.mark.parametrize("sent_at", [moments.EARLIEST, moments.LATEST])
@pytest.mark.parametrize("seen_at", [moments.EARLIEST, moments.LATEST])
def test_a_clock_at_the_end_of_the_calendar_loses_no_fault(
    node: Node, now: datetime, sent_at: datetime, seen_at: datetime
) -> None:
    told = wire.Report(
        node=NODE,
        boot_id=BOOT,
        batch_id=str(uuid.uuid4()),
        sent_at=sent_at,
        faults=(replace(LINE, seen_at=seen_at),),
    )
    services.ingest([services.IncomingReport.of(node.cluster, told, received_at=now)], now=now)
    assert Incident.objects.get().code == "119"
