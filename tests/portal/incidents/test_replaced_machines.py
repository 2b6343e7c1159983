"""Incidents belong to a machine, not to a name."""

import uuid
from datetime import datetime, timedelta

import pytest

from kcover import reasons, wire
from kcover.faults.fault import Fault, Gpu, Inventory
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import node_rows
from kcover_portal.incidents import queries, services
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.queries import seen as seen_queries
from kcover_portal.incidents.services import inventory, record_faults, replaced_machines
from kcover_portal.kube import port
from tests.codes import code_of

OLD = port.Node(name="gone-1", uid="u1", boot_id="boot-1", provider_id="azure:///vm/3", system_uuid="")
MINUTE = timedelta(minutes=1)


def see(cluster: Cluster, node: port.Node, now: datetime) -> Node:
    Cluster.objects.filter(pk=cluster.pk).update(watched_at=now)
    node_rows.sync_events(cluster, [port.NodeEvent(kind="MODIFIED", node=node, resource_version="5")], now=now)
    return Node.objects.select_related("cluster").get(name=node.name)


def faults(node: Node, now: datetime) -> None:
    given = {"kind": "condition", "code": "DiskBroken=True", "source": "conditions"}
    seen = services.SourceFault(**given, witness="east-conditions")
    services.ingest_observed("east-conditions", [(node, seen)], [], now=now)
    xid = Fault(kind="xid", code=79, pci="0000:4e:00", source="kmsg")
    record_faults.keep_faults(node, [xid], boot_id=node.boot_id, now=now)


@pytest.mark.parametrize(
    ("other", "is_another"),
    [
        ({"uid": "u2", "provider_id": "azure:///vm/4", "boot_id": "boot-2"}, True),
        ({"uid": "u2", "provider_id": "", "boot_id": "boot-2"}, True),
        ({"uid": "u2", "provider_id": "azure:///vm/3", "boot_id": "boot-2"}, False),  # registered again
        ({"boot_id": "boot-2"}, False),  # rebooted
    ],
)
def test_inv_07_another_machine_inherits_no_open_incident(
    east: Cluster, now: datetime, other: dict[str, str], is_another: bool
) -> None:
    faults(see(east, OLD, now), now)
    new = port.Node(**{"name": "gone-1", "uid": "u1", "provider_id": OLD.provider_id, **other})
    node = see(east, new, now + MINUTE)
    assert replaced_machines.close_all(now=now + MINUTE) == (2 if is_another else 0)
    assert {row.state for row in Incident.objects.all()} == ({"closed"} if is_another else {"open"})
    if is_another:
        assert {code_of(row.closed_because) for row in Incident.objects.all()} == {"name_has_another_machine"}
        faults(node, now + 2 * MINUTE)
        assert replaced_machines.close_all(now=now + 3 * MINUTE) == 0
        assert Incident.objects.filter(state="open").count() == 2


REPLACED = (
    reasons.of("another_machine", node="gone-1", uid="u2", expected="u1"),
    reasons.of("name_has_another_machine"),
)


@pytest.mark.parametrize("because", REPLACED, ids=lambda because: because.code)
def test_inv_55_a_late_report_about_the_machine_before_stays_with_its_closed_incident(
    east: Cluster, now: datetime, because: reasons.Reason
) -> None:
    node = see(east, OLD, now)
    xid = Fault(kind="xid", code=79, pci="0000:4e:00", source="kmsg")
    record_faults.keep_faults(node, [xid], boot_id=node.boot_id, now=now)
    row = Incident.objects.get()
    services.close([row.pk], because=because, actor="test", now=now + MINUTE)
    node = see(east, port.Node(name="gone-1", uid="u2", provider_id="azure:///vm/4", boot_id="boot-2"), now + MINUTE)
    told = {"kind": "xid", "code": 79, "pci": "0000:4e:00", "source": "loki", "witness": "loki", "severity": "fatal"}
    seen = services.SourceFault(**told, seen_at=now, earliest=now)
    services.ingest_observed("loki", [(node, seen)], [], now=now + 2 * MINUTE)
    row.refresh_from_db()
    assert (row.state, row.count, Incident.objects.count()) == ("closed", 2, 1)


def test_inv_55_a_late_report_about_the_machine_before_is_no_fault_of_the_new_one(east: Cluster, now: datetime) -> None:
    see(east, OLD, now)
    node = see(east, port.Node(name="gone-1", uid="u2", provider_id="azure:///vm/4", boot_id="boot-2"), now + MINUTE)
    told = {"kind": "xid", "code": 79, "pci": "0000:4e:00", "source": "loki", "witness": "loki", "severity": "fatal"}
    seen = services.SourceFault(**told, seen_at=now, earliest=now)
    services.ingest_observed("loki", [(node, seen)], [], now=now + 2 * MINUTE)
    rows = queries.open_on(node)
    assert [row.boot_id for row in rows] == ["boot-1"]
    assert not rows.exclude(seen_queries.of_earlier_machine()).exists()
    assert replaced_machines.close_all(now=now + 3 * MINUTE) == 1


def test_the_new_machines_agent_may_be_faster_than_the_watch(east: Cluster, now: datetime) -> None:
    node = see(east, OLD, now)
    xid = Fault(kind="xid", code=79, pci="0000:4e:00", source="kmsg")
    record_faults.keep_faults(node, [xid], boot_id="boot-2", now=now)
    see(east, port.Node(name="gone-1", uid="u2", provider_id="azure:///vm/4", boot_id="boot-2"), now + MINUTE)
    assert replaced_machines.close_all(now=now + MINUTE) == 0


def describe(cluster: Cluster, gpu_uuid: str, *, boot_id: str, now: datetime) -> None:
    """The agent tells its inventory, once."""
    gpu = Gpu(index=3, uuid=gpu_uuid, pci="0000:4e:00", model="H100")
    report = wire.Report(
        node="gone-1",
        boot_id=boot_id,
        batch_id=str(uuid.uuid4()),
        sent_at=now,
        inventory=Inventory(driver="550", kernel="6.1", gpus=(gpu,)),
    )
    services.ingest([services.IncomingReport.of(cluster, report, received_at=now)], now=now)


@pytest.mark.parametrize("boot_id", ["boot-1", "boot-2"])
def test_an_inventory_belongs_to_the_machine_of_its_boot(east: Cluster, now: datetime, boot_id: str) -> None:
    see(east, OLD, now)
    describe(east, "GPU-x", boot_id=boot_id, now=now + MINUTE)  # before the watch shows the new machine
    node = see(
        east, port.Node(name="gone-1", uid="u2", provider_id="azure:///vm/4", boot_id="boot-2"), now + 2 * MINUTE
    )
    assert len(inventory.known_gpus(node)) == (1 if boot_id == "boot-2" else 0)
