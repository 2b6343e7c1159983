"""One fault, many witnesses: an agent and several sources see the same fault."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover import reasons, wire
from kcover.faults.fault import Fault
from kcover_portal.accounts import services as accounts
from kcover_portal.fleet.models import Cluster, Gpu, Node
from kcover_portal.incidents import queries, services as incidents
from kcover_portal.incidents.models import Incident

LINE = "NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus."


def agent_reports(east: Cluster, *faults: Fault, at: datetime) -> None:
    report = wire.Report(node="gpu-1", boot_id="boot-1", batch_id=str(uuid.uuid4()), sent_at=at, faults=faults)
    incidents.ingest([incidents.IncomingReport.of(east, report, received_at=at)], now=at)


def xid(code: int = 79, **more: Any) -> Fault:
    return Fault(**{"kind": "xid", "code": code, "pci": "0000:4e:00", "message": LINE, "source": "kmsg", **more})


def source_reports(witness: str, *, at: datetime, **more: Any) -> None:
    node = Node.objects.select_related("cluster").get(name="gpu-1")
    given = {"kind": "health", "code": "SysLogsXIDError/79", "alias": "xid 79", "pci": "0000:4e:00"}
    seen = incidents.SourceFault(witness=witness, source="other", **{**given, **more})
    incidents.ingest_observed(witness, [(node, seen)], [], now=at)


def only() -> Incident:
    return Incident.objects.get(state="open")


def names(row: Incident) -> list[tuple[str, int]]:
    return [(one.source, one.count) for one in queries.witnesses([row.pk])[row.pk]]


def test_three_sources_of_one_fault_make_one_incident(east: Cluster, now: datetime) -> None:
    source_reports("nvsentinel", at=now)
    source_reports("loki", at=now + timedelta(seconds=5), kind="xid", code=79, alias="")
    agent_reports(east, xid(), at=now + timedelta(seconds=10))
    source_reports("prometheus", at=now + timedelta(seconds=20), kind="alert", code="Lost", alias="xid 79", pci=None)
    row = only()
    assert (row.kind, row.code, row.device) == ("xid", "79", "0000:4e:00")
    assert names(row) == [("nvsentinel", 1), ("loki", 1), ("agent", 1), ("prometheus", 1)]
    [first, *_, last] = queries.witnesses([row.pk])[row.pk]
    assert (first.first_seen_at, last.last_seen_at) == (now, now + timedelta(seconds=20))


def test_the_agent_first_then_the_sources(east: Cluster, now: datetime) -> None:
    agent_reports(east, xid(), at=now)
    source_reports("nvsentinel", at=now + timedelta(seconds=30))
    source_reports("loki", at=now + timedelta(seconds=31), kind="xid", code=79, alias="")
    assert names(only()) == [("agent", 1), ("nvsentinel", 1), ("loki", 1)]
    assert only().kind == "xid"


def test_after_the_window_another_name_is_another_incident(east: Cluster, now: datetime) -> None:
    agent_reports(east, xid(), at=now)
    source_reports("nvsentinel", at=now + timedelta(seconds=61))
    assert Incident.objects.filter(state="open").count() == 2


REBOOTED = timedelta(seconds=90)


def reboot(row: Incident) -> Node:
    """The watch shows the new boot after 20 s."""
    times = {"boot-2": (row.last_at + timedelta(seconds=20)).isoformat()}
    Node.objects.filter(pk=row.node_id).update(boot_id="boot-2", past_boots=["boot-1"], boot_times=times)
    return Node.objects.get(pk=row.node_id)


def repaired(row: Incident, *, at: datetime) -> None:
    incidents.close([row.pk], because=reasons.of("incident_verified", rescue="1"), actor="rescue 1", now=at)


def test_a_report_that_arrives_after_the_reboot_is_of_the_boot_of_its_own_time(east: Cluster, now: datetime) -> None:
    agent_reports(east, xid(seen_at=now), at=now)
    node = reboot(only())
    source_reports("gpud", at=now + REBOOTED, kind="gpud", code="error-xid", seen_at=now + timedelta(seconds=9))
    assert names(only()) == [("agent", 1), ("gpud", 1)]
    assert queries.faults_since(node, now, boot_id="boot-2") == []
    source_reports("gpud", at=now + REBOOTED, kind="gpud", code="error-xid", seen_at=now + REBOOTED)
    assert [row.kind for row in queries.faults_since(node, now, boot_id="boot-2")] == ["gpud"]


def test_a_report_that_arrives_after_the_repair_opens_no_incident(east: Cluster, now: datetime) -> None:
    agent_reports(east, xid(seen_at=now), at=now)
    row = only()
    reboot(row)
    repaired(row, at=now + REBOOTED)
    late = {"at": now + 2 * REBOOTED, "seen_at": now + timedelta(seconds=9)}
    source_reports("nvsentinel", **late)
    assert not Incident.objects.filter(state="open").exists()
    assert names(row) == [("agent", 1), ("nvsentinel", 1)]
    source_reports("alerts", **late, kind="alert", code="Lost")  # it began before the reboot, and proves nothing after
    assert not Incident.objects.filter(state="open").exists()
    late_ones = row.occurrences.exclude(late_seconds=None).order_by("pk")
    assert [(one.witness, one.late_seconds) for one in late_ones] == [("nvsentinel", 171.0), ("alerts", 171.0)]


def test_each_fault_of_a_request_belongs_to_the_boot_of_its_own_time(east: Cluster, now: datetime) -> None:
    """After an outage a source reports a fault of the boot before and one of the new boot in one request."""
    agent_reports(east, xid(seen_at=now), at=now)
    node = reboot(only())
    given = {"kind": "health", "code": "SysLogsXIDError/79", "alias": "xid 79", "pci": "0000:4e:00", "source": "other"}
    seen = [
        (node, incidents.SourceFault(witness="nvsentinel", **given, seen_at=now + timedelta(seconds=seconds)))
        for seconds in (9, 300)
    ]
    incidents.ingest_observed("nvsentinel", seen, [], now=now + timedelta(seconds=360))
    assert [row.kind for row in queries.faults_since(node, now, boot_id="boot-2")] == ["health"]


@pytest.mark.parametrize(
    ("witness", "closed", "seen"),
    [("nvsentinel", "closed_by", 9), ("nvsentinel", "incident_verified", 95)],
    ids=["closed by a person", "seen after the repair"],
)
def test_other_late_reports_open_an_incident(
    east: Cluster, now: datetime, witness: str, closed: str, seen: int
) -> None:
    source_reports("first", at=now, seen_at=now + timedelta(seconds=50))
    why = reasons.of(closed, by="ann") if closed == "closed_by" else reasons.of(closed, rescue="1")
    incidents.close([only().pk], because=why, actor="test", now=now + REBOOTED)
    source_reports(witness, at=now + 2 * REBOOTED, seen_at=now + timedelta(seconds=seen))
    assert names(only()) == [(witness, 1)]


def test_several_xids_of_one_component_join_the_incident_of_each(east: Cluster, now: datetime) -> None:
    agent_reports(east, xid(48), xid(64), at=now)
    node = Node.objects.select_related("cluster").get(name="gpu-1")
    given = {"kind": "gpud", "code": "error-xid", "pci": "0000:4e:00", "witness": "gpud", "source": "gpud"}
    seen = [(node, incidents.SourceFault(**given, alias=f"xid {code}")) for code in (64, 48)]
    incidents.ingest_observed("gpud", seen, [], now=now + timedelta(seconds=30))
    rows = Incident.objects.filter(state="open").order_by("code")
    assert [(row.code, names(row)) for row in rows] == [(code, [("agent", 1), ("gpud", 1)]) for code in ("48", "64")]


def test_other_devices_and_codes_have_their_own_incident(east: Cluster, now: datetime) -> None:
    agent_reports(east, xid(), at=now)
    source_reports("nvsentinel", at=now, pci="0000:5e:00")
    source_reports("nvsentinel", at=now, code="SysLogsXIDError/48", alias="xid 48")
    assert Incident.objects.filter(state="open").count() == 3


def test_a_report_without_device_joins_only_a_single_candidate(east: Cluster, now: datetime) -> None:
    agent_reports(east, xid(), at=now)
    source_reports("alerts", at=now, pci=None)
    assert names(only()) == [("agent", 1), ("alerts", 1)]
    agent_reports(east, xid(pci="0000:5e:00"), at=now + timedelta(seconds=1))
    source_reports("others", at=now + timedelta(seconds=2), pci=None, kind="alert", code="Lost")
    assert Incident.objects.filter(state="open").count() == 3


def test_a_gpu_named_by_uuid_is_the_same_device(east: Cluster, now: datetime) -> None:
    node = Node.objects.get(name="gpu-1")
    Gpu.objects.create(node=node, index=0, uuid="GPU-a", pci="00000000:4E:00.0", seen_at=now)
    agent_reports(east, xid(), at=now)
    source_reports("nvsentinel", at=now, pci=None, gpu_uuid="GPU-a")
    assert only().device == "0000:4e:00"


def test_an_agents_device_makes_a_sources_incident_precise(east: Cluster, now: datetime) -> None:
    source_reports("alerts", at=now, pci=None, kind="xid", code=79, alias="")
    agent_reports(east, xid(), at=now + timedelta(seconds=3))
    row = only()
    assert (row.device, row.count) == ("0000:4e:00", 2)


def test_an_agents_own_faults_are_never_joined(east: Cluster, now: datetime) -> None:
    agent_reports(east, xid(), at=now)
    agent_reports(east, xid(pci=None), at=now)
    assert Incident.objects.filter(state="open").count() == 2


def test_a_fault_with_many_witnesses_was_seen_once(east: Cluster, now: datetime) -> None:
    """A rule with minCount 3 must not act because three systems saw one fault."""
    agent_reports(east, xid(), at=now)
    source_reports("nvsentinel", at=now)
    source_reports("loki", at=now, kind="xid", code=79, alias="")
    assert queries.seen_within(only(), 3600, now=now) == 1
    agent_reports(east, xid(), at=now + timedelta(seconds=1))
    assert queries.seen_within(only(), 3600, now=now + timedelta(seconds=1)) == 2


def test_a_pass_closes_no_fault_that_others_saw(east: Cluster, now: datetime) -> None:
    source_reports("nvsentinel", at=now)
    agent_reports(east, xid(), at=now)
    node = Node.objects.select_related("cluster").get(name="gpu-1")
    for kind in ("health", "xid"):
        passed = incidents.PassedCheck(node="gpu-1", kind=kind, check="SysLogsXIDError")
        incidents.ingest_observed("nvsentinel", [], [(node, passed)], now=now + timedelta(seconds=1))
    assert only().kind == "xid"


def test_a_flood_of_one_node_is_bounded(east: Cluster, now: datetime) -> None:
    node = Node.objects.select_related("cluster").get(name="gpu-1")
    faults = [
        (node, incidents.SourceFault(kind="alert", code=f"A{number}", witness="alerts", source="alertmanager"))
        for number in range(70)
    ]
    incidents.ingest_observed("alerts", faults, [], now=now)
    assert Incident.objects.filter(kind="alert").count() == 64
    assert Incident.objects.get(kind="overflow").count == 6


def test_rest_lists_the_witnesses(east: Cluster, now: datetime, client: Any) -> None:
    agent_reports(east, xid(), at=now)
    source_reports("nvsentinel", at=now, advice="RESTART_BM")
    _, secret = accounts.make_token("viewer", created_by="test", now=now - timedelta(seconds=1))
    headers = {"Authorization": f"Bearer {secret}"}
    [row] = client.get("/api/v1/incidents", headers=headers).json()["results"]
    assert [one["source"] for one in row["witnesses"]] == ["agent", "nvsentinel"]
    assert set(row["witnesses"][0]) == {"source", "first_seen_at", "last_seen_at", "count"}
    assert row["advice"] == "RESTART_BM"
    assert client.get(f"/api/v1/incidents/{row['id']}", headers=headers).json()["witnesses"] == row["witnesses"]
