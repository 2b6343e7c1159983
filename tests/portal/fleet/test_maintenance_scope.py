"""A maintenance window covers nodes that the cluster has; a scope without nodes is refused, with what is near to it."""

from datetime import datetime
from typing import Any

import pytest

from kcover_portal.errors import FieldError
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import maintenance_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def prod(now: datetime) -> Cluster:
    return Cluster.objects.create(name="prod", created_at=now)


def add(cluster: Cluster, name: str, *, pool: str = "", **more: Any) -> None:
    Node.objects.create(
        cluster=cluster, name=name, pool=pool, **{"in_cluster": True, "created_at": cluster.created_at, **more}
    )


def refusal(cluster: Cluster | None, **scope: str) -> tuple[str, str, dict[str, Any]]:
    """The field, the code and the parameters."""
    with pytest.raises(FieldError) as refused:
        maintenance_scope.count_covered(cluster, **scope)
    return refused.value.field, refused.value.reason.code, dict(refused.value.reason.params)


def test_a_scope_counts_the_nodes_that_the_cluster_has(prod: Cluster, now: datetime) -> None:
    other = Cluster.objects.create(name="other", created_at=now)
    for name, pool in (("gpu-1", "a100"), ("gpu-2", "a100"), ("gpu-3", "h100"), ("cpu-1", "")):
        add(prod, name, pool=pool)
    add(prod, "gone", pool="a100", in_cluster=False)
    add(other, "gpu-1", pool="a100")
    assert maintenance_scope.count_covered(None) == 5
    assert maintenance_scope.count_covered(prod) == 4
    assert maintenance_scope.count_covered(prod, pool="a100") == 2
    assert maintenance_scope.count_covered(prod, node="gpu-3") == 1


def test_an_unknown_pool_is_refused_with_the_pools_of_the_cluster(prod: Cluster, now: datetime) -> None:
    add(prod, "gpu-1", pool="a-train")
    add(prod, "gpu-2", pool="h100-train")
    add(prod, "gpu-3", pool="gone", in_cluster=False)
    add(Cluster.objects.create(name="other", created_at=now), "gpu-1", pool="h100")
    field, code, params = refusal(prod, pool="h100-trian")
    assert (field, code) == ("pool", "pool_without_nodes")
    assert params == {"cluster": "prod", "pool": "h100-trian", "pools": "h100-train, a-train"}  # the nearest first
    assert refusal(prod, pool="gone")[1] == "pool_without_nodes"


def test_many_pools_are_not_all_listed(prod: Cluster) -> None:
    for number in range(30):
        add(prod, f"gpu-{number}", pool=f"p-{number}")
    pools = refusal(prod, pool="x")[2]["pools"]
    assert dict(pools.params)["more"] == 30 - maintenance_scope.MAX_NAMED_POOLS


def test_a_cluster_without_pools_says_so(prod: Cluster) -> None:
    add(prod, "gpu-1")
    assert refusal(prod, pool="a") == ("pool", "cluster_without_pools", {"cluster": "prod", "pool": "a"})


def test_an_unknown_node_is_refused_with_the_nearest_names(prod: Cluster, now: datetime) -> None:
    for number in range(40):
        add(prod, f"gpu-{number:04}")
    add(Cluster.objects.create(name="other", created_at=now), "elsewhere")
    field, code, params = refusal(prod, node="gpu-0030,gpu-0031")
    assert (field, code) == ("node", "node_misspelt")
    assert {"gpu-0030", "gpu-0031"} & set(params["near"].split(", "))
    assert refusal(prod, node="elsewhere") == ("node", "nodes_missing", {"cluster": "prod", "nodes": "elsewhere"})
    assert refusal(prod, node="gpu-003")[2]["near"]


def test_a_cluster_without_nodes_is_refused(prod: Cluster) -> None:
    add(prod, "gone", in_cluster=False)
    assert refusal(None)[:2] == ("cluster", "clusters_without_nodes")
    for scope in ({}, {"pool": "a"}, {"node": "gone"}):
        assert refusal(prod, **scope) == ("cluster", "cluster_without_nodes", {"cluster": "prod"})


def test_the_parts_of_a_scope_fit_together(prod: Cluster) -> None:
    add(prod, "gpu-1", pool="a")
    assert refusal(None, pool="a")[:2] == ("cluster", "cluster_required")
    assert refusal(prod, pool="a", node="gpu-1")[:2] == ("node", "pool_and_node")
