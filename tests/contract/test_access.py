"""Reviews of the account's own rights."""

import pytest

from kcover_portal.kube import port
from tests.contract import rigs

ALLOWED = (
    port.Right("patch", "", "nodes"),
    port.Right("create", "", "pods/eviction"),
    port.Right("create", "batch", "jobs", "kcover-jobs"),
)
REFUSED = (
    port.Right("delete", "", "nodes"),
    port.Right("get", "", "secrets"),
    port.Right("create", "batch", "jobs"),
    port.Right("create", "batch", "jobs", "kube-system"),
)


@pytest.fixture
def cluster(rig: rigs.Rig) -> port.Cluster:
    if isinstance(rig, rigs.FakeRig):
        rig.cluster.forbidden.update(REFUSED)
    return rig.cluster


def test_an_account_learns_its_own_rights_without_a_write(rig: rigs.Rig, cluster: port.Cluster) -> None:
    before = rig.writes()
    assert [cluster.is_allowed(right) for right in (*ALLOWED, *REFUSED)] == [True] * 3 + [False] * 4
    assert rig.writes() == before


def test_nodes_are_counted_from_a_list_of_one(rig: rigs.Rig, cluster: port.Cluster) -> None:
    before = cluster.count_nodes()
    for number in range(3):
        rig.node(rig.name(f"gpu-{number}"))
    assert cluster.count_nodes() == before + 3
