"""A cluster, and reports of its nodes passed to the service that the agents' endpoint calls."""

import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from kcover import wire
from kcover.faults.fault import Check, Fault, Gpu, Inventory
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents import services


@pytest.fixture
def east(db: None, now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


@pytest.fixture
def deliver(east: Cluster, now: datetime) -> Callable[..., wire.Answer]:
    """One report alone."""

    def run(report: wire.Report, *, at: datetime = now) -> wire.Answer:
        return services.ingest([incoming(east, report, at=at)], now=at)[0]

    return run


def incoming(cluster: Cluster, report: wire.Report, *, at: datetime) -> services.IncomingReport:
    return services.IncomingReport.of(cluster, report, received_at=at)


def report(*faults: Fault, node: str = "gpu-1", now: datetime, **more: Any) -> wire.Report:
    given = {"boot_id": "boot-1", "batch_id": str(uuid.uuid4()), "agent": "1.0.0", "sent_at": now}
    return wire.Report(node=node, faults=faults, **{**given, **more})


def xid(code: int = 79, **more: Any) -> Fault:
    return Fault(kind="xid", code=code, pci="0000:4e:00", source="kmsg", **more)


def check(status: str = "pass", *, name: str = "remapped", **more: Any) -> Check:
    return Check(name=name, status=status, device="GPU-1", **{"value": 0.0, "unit": "rows", **more})


def inventory(count: int = 2, **more: Any) -> Inventory:
    gpus = tuple(Gpu(index=index, uuid=f"GPU-{index}", pci=f"0000:{index:02x}:00.0") for index in range(count))
    return Inventory(**{"driver": "580.1", "kernel": "6.8", "gpus": gpus, **more})
