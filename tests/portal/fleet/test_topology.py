"""The topology of a cluster: which labels name a node's pool and its other domains."""

from datetime import datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import cluster_settings, node_rows
from kcover_portal.ledger.models import Entry
from kcover_portal.lib.errors import FieldError
from tests.codes import refused
from tests.kube_fake import FakeCluster

pytestmark = pytest.mark.django_db
KEY = "example.com/team"


@pytest.fixture
def east(now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


@pytest.fixture
def kube(east: Cluster, now: datetime) -> FakeCluster:
    made = FakeCluster(clock=lambda: now)
    for number, team in enumerate(("red", "blue", "")):
        made.add_node(f"gpu-{number}", gpus=8, labels={"pool": "all"} | ({KEY: team} if team else {}))
    node_rows.sync_list(east, made.list_nodes().items, now=now)
    return made


def pools() -> list[str]:
    return list(Node.objects.order_by("name").values_list("pool", flat=True))


def set_topology(cluster: Cluster, topology: Any, now: datetime) -> None:
    cluster_settings.set_cluster(cluster, {"topology": topology}, actor="user:ada", reason="teams", now=now)


def test_without_a_topology_the_platforms_labels_name_the_pool(kube: FakeCluster) -> None:
    assert pools() == ["all", "all", "all"]


def test_a_change_of_the_label_moves_every_node_at_once(east: Cluster, kube: FakeCluster, now: datetime) -> None:
    with CaptureQueriesContext(connection) as asked:
        set_topology(east, {"pool": KEY, "rack": ""}, now)
    assert pools() == ["red", "blue", ""]
    assert sum("fleet_node" in query["sql"] for query in asked) == 1
    assert east.topology == {"pool": KEY}
    entry = Entry.objects.get(verb="cluster.changed")
    assert entry.data["changed"] == {"topology": {"before": {}, "after": {"pool": KEY}}}
    set_topology(east, {}, now)
    assert pools() == ["all", "all", "all"]


def test_a_node_has_the_domains_that_its_labels_name(east: Cluster, kube: FakeCluster, now: datetime) -> None:
    kube.add_node("gpu-9", gpus=8, labels={"nvidia.com/gpu.clique": "9f.1", "kcover.io/switch": "s1", KEY: "r7"})
    set_topology(east, {"rack": KEY}, now)
    node_rows.sync_list(east, kube.list_nodes().items, now=now)
    node = Node.objects.select_related("cluster").get(name="gpu-9")
    assert queries.topology_of(node) == {"rack": "r7", "leaf": "s1", "nvlink": "9f.1", "pool": ""}


def test_a_watch_with_the_old_topology_moves_no_node_back(east: Cluster, kube: FakeCluster, now: datetime) -> None:
    stale = Cluster.objects.get(pk=east.pk)
    set_topology(east, {"pool": KEY}, now)
    kube.cordon("gpu-0")
    node_rows.sync_list(stale, kube.list_nodes().items, now=now)
    assert pools() == ["red", "blue", ""]
    assert Node.objects.get(name="gpu-0").unschedulable


def test_new_nodes_and_new_labels_count(east: Cluster, kube: FakeCluster, now: datetime) -> None:
    set_topology(east, {"pool": KEY}, now)
    kube.add_node("gpu-9", gpus=8, labels={KEY: "green", "pool": "all"})
    node_rows.sync_list(east, kube.list_nodes().items, now=now)
    assert pools() == ["red", "blue", "", "green"]


@pytest.mark.parametrize(
    ("topology", "code"),
    [
        ("pool", "topology_invalid"),
        ({"row": KEY}, "domain_unknown"),
        ({"pool": "not a key"}, "topology_key_invalid"),
        ({"pool": 7}, "topology_key_invalid"),
    ],
)
def test_an_invalid_topology_is_refused(topology: Any, code: str, east: Cluster, now: datetime) -> None:
    with refused(FieldError, code):
        set_topology(east, topology, now)
