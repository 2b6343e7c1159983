"""Since when a node has had its machine, and the readiness taint."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import node_rows
from kcover_portal.kube import port

pytestmark = pytest.mark.django_db
UUID = "4c4c4544-0044-4a10-8058-b7c04f4e3533"
SWAPPED = "44454c4c-4400-104a-8058-b7c04f4e3533"  # the same in the other byte order
OTHER = "4c4c4544-0044-4a10-8058-b7c04f4e3534"
MACHINE = port.Node(name="gpu-1", uid="u1", labels={}, annotations={}, system_uuid=UUID, provider_id="aws:///i-1")


@pytest.fixture
def east(db: None, now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


@pytest.fixture
def later(now: datetime) -> datetime:
    return now + timedelta(seconds=1)


@pytest.fixture
def listed(east: Cluster, now: datetime) -> Cluster:
    east.watched_at = now
    east.save()
    return east


def see(cluster: Cluster, node: port.Node, now: datetime) -> Node:
    node_rows.sync_events(cluster, [port.NodeEvent(kind="MODIFIED", node=node, resource_version="5")], now=now)
    return Node.objects.get(name=node.name)


def test_nodes_of_the_first_list_are_not_new(east: Cluster, now: datetime) -> None:
    node_rows.sync_list(east, [MACHINE], now=now)
    assert Node.objects.get().machine_since is None


def test_a_node_that_joins_later_is_new(listed: Cluster, now: datetime, later: datetime) -> None:
    row = see(listed, MACHINE, later)
    assert (row.machine_after, row.machine_since) == (now, later)


@pytest.mark.parametrize(
    ("change", "new"),
    [
        ({"uid": "u2"}, False),  # only the object was created again
        ({"uid": "u2", "system_uuid": OTHER}, True),
        ({"system_uuid": OTHER}, True),
        ({"provider_id": "aws:///i-2"}, True),
        ({"system_uuid": SWAPPED}, False),
        ({"system_uuid": "", "provider_id": ""}, False),
        ({"uid": "u2", "system_uuid": "", "provider_id": ""}, True),
    ],
)
def test_a_changed_identity_is_another_machine(
    listed: Cluster, now: datetime, later: datetime, change: dict[str, str], new: bool
) -> None:
    see(listed, MACHINE, now)
    assert see(listed, replace(MACHINE, **change), later).machine_since == (later if new else now)


def test_a_row_from_before_the_columns_is_not_new(listed: Cluster, now: datetime, later: datetime) -> None:
    see(listed, MACHINE, now)
    Node.objects.update(system_uuid="", provider_id="", machine_since=None)
    row = see(listed, MACHINE, later)
    assert (row.machine_since, row.system_uuid, row.provider_id) == (None, UUID, "aws:///i-1")


def test_a_parked_node_that_joins_is_new(listed: Cluster, now: datetime, later: datetime) -> None:
    Node.objects.create(cluster=listed, name="gpu-1", created_at=now)
    assert see(listed, MACHINE, later).machine_since == later


def test_the_readiness_taint_counts_from_its_first_sight(listed: Cluster, now: datetime, later: datetime) -> None:
    tainted = replace(MACHINE, taints=(port.Taint("kcover.io/not-ready", "x", "NoExecute"),))
    assert see(listed, MACHINE, now).not_ready_since is None
    assert see(listed, tainted, now).not_ready_since == now
    assert see(listed, replace(tainted, labels={"a": "b"}), later).not_ready_since == now
    assert see(listed, replace(tainted, uid="u2"), later).not_ready_since == later
    assert see(listed, MACHINE, later).not_ready_since is None
