"""Nodes that report their parts, through the service that the agents' endpoint calls."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import pytest

from kcover.faults.fault import Gpu, Inventory, Nic
from kcover_portal.fleet.models import Cluster, Hardware, Node
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.parts import services
from kcover_portal.parts.models import Placement
from kcover_portal.parts.queries import risks
from tests.portal.incidents.conftest import incoming, report


@pytest.fixture(autouse=True)
def _nothing_learned() -> Iterator[None]:
    yield
    risks.forget()


@pytest.fixture
def east(db: None, now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


@pytest.fixture
def west(db: None, now: datetime) -> Cluster:
    return Cluster.objects.create(name="west", created_at=now)


def inventory(*gpus: str, machine: str = "", board: str = "", nics: Sequence[str] = ()) -> Inventory:
    """An inventory with GPUs of these serial numbers, in order of their slots; "" leaves a slot free."""
    return Inventory(
        driver="580",
        gpus=tuple(
            Gpu(index=slot, uuid=f"GPU-{serial}", pci=f"0000:{slot:02x}:00", model="H100", serial=serial)
            for slot, serial in enumerate(gpus)
            if serial
        ),
        machine_serial=machine,
        board_serial=board,
        nics=tuple(Nic(serial=one, name=f"mlx5_{n}", pci=f"0000:a{n}:00.0") for n, one in enumerate(nics)),
    )


def tell(cluster: Cluster, reports: Mapping[str, Inventory | None], *, at: datetime, record: bool = True) -> None:
    """Reports of nodes with their inventories (None: only a heartbeat), and what the workers then do."""
    sent = [incoming(cluster, report(node=name, now=at, inventory=one), at=at) for name, one in reports.items()]
    incidents.ingest(sent, now=at)
    if record:
        services.record_changed(now=at, monotonic=lambda: 0.0)  # the clock of a sweep stands still
        services.settle_claims(now=at)
        assert not Hardware.objects.filter(unrecorded=True).exists()


def places(serial: str) -> list[tuple[str, str, bool, str]]:
    """The placements of a part, oldest first: node, slot, whether it is there, doubt."""
    rows = Placement.objects.filter(part__serial=serial).order_by("since", "pk")
    return [(row.node_name, row.slot, row.until is None, row.doubt) for row in rows]


def flags(serial: str) -> list[str]:
    """The codes of the reasons why a person should look at the part."""
    rows = Placement.objects.filter(part__serial=serial).order_by("pk")
    return [reason.code for row in rows for reason in row.reasons]


def fault(node: Node, at: datetime, *, gpu: str = "", device: str = "", severity: str = "fatal") -> Incident:
    uuid = f"GPU-{gpu}" if gpu else ""
    return Incident.objects.create(
        cluster=node.cluster,
        node=node,
        kind="xid",
        code="79",
        device=device or uuid,
        gpu_uuid=uuid,
        severity=severity,
        state="closed",
        opened_at=at,
        last_at=at,
        closed_at=at + timedelta(minutes=1),
    )
