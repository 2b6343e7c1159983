"""The nodes of a scope; a scope without nodes or with an unknown name is refused, with what is near to it."""

from datetime import datetime
from typing import Any

import pytest

from kcover.nodes import scopes
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import node_scopes, scope_checks
from kcover_portal.lib.errors import FieldError

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
        scope_checks.select(cluster, scope_checks.read({}, **scope), fields={"pools": "pool", "nodes": "node"})
    return refused.value.field, refused.value.reason.code, dict(refused.value.reason.params)


def test_a_scope_counts_the_nodes_that_the_cluster_has(prod: Cluster, now: datetime) -> None:
    other = Cluster.objects.create(name="other", created_at=now)
    for name, pool in (("gpu-1", "a100"), ("gpu-2", "a100"), ("gpu-3", "h100"), ("cpu-1", "")):
        add(prod, name, pool=pool)
    add(prod, "gone", pool="a100", in_cluster=False)
    add(other, "gpu-1", pool="a100")
    assert scope_checks.select(None).count() == 5
    assert scope_checks.select(prod).count() == 4
    for selection, number in (({"pools": ["a100"]}, 2), ({"nodes": ["gpu-3", "gpu-1"]}, 2)):
        assert scope_checks.select(prod, scope_checks.read(selection)).count() == number


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
    assert dict(pools.params)["more"] == 30 - scope_checks.MAX_NAMED_POOLS


def test_an_unknown_pool_of_a_cluster_without_pools_is_refused_with_that_reason(prod: Cluster) -> None:
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
    with pytest.raises(FieldError) as refused:
        scope_checks.read({"pools": ["a"]}, node="gpu-1")
    assert (refused.value.field, refused.value.reason.code) == ("pools", "scope_or_pool_or_node")


RACK, LEAF = "topology.kubernetes.io/rack", "example.com/leaf"
SELECTIONS: tuple[tuple[dict[str, Any], list[str]], ...] = (
    ({}, ["a-1", "a-2", "b-1", "bare"]),
    ({"nodes": ["b-1", "gone", "x"]}, ["b-1"]),
    ({"pools": ["p"]}, ["a-1", "b-1"]),
    ({"labels": {"zone": "z1"}}, ["a-1", "a-2"]),
    ({"labels": "zone=z1, gpu"}, ["a-1"]),
    ({"labels": ["gpu="]}, ["a-1"]),
    ({"domains": {"rack": ["A", "C"]}}, ["a-1", "a-2"]),
    ({"domains": {"leaf": ["l1"]}}, ["a-1", "b-1"]),  # by the cluster's own key
    ({"domains": {"nvlink": ["q"]}}, ["a-2"]),  # the second well-known key, because the first one is empty
)


@pytest.mark.parametrize(("selection", "names"), SELECTIONS)
def test_the_database_and_the_core_agree_on_the_nodes_of_a_scope(
    prod: Cluster, selection: dict[str, Any], names: list[str]
) -> None:
    prod.topology = {"leaf": LEAF}
    clique, accelerator = "nvidia.com/gpu.clique", "network.topology.nvidia.com/accelerator"
    add(prod, "a-1", pool="p", labels={RACK: "A", LEAF: "l1", "zone": "z1", "gpu": ""})
    add(prod, "a-2", labels={RACK: "A", "kcover.io/switch": "l1", "zone": "z1", clique: "", accelerator: "q"})
    add(prod, "b-1", pool="p", labels={RACK: "B", LEAF: "l1", "zone": "z2"})
    add(prod, "bare")
    add(prod, "gone", pool="p", labels={RACK: "A", LEAF: "l1", "zone": "z1"}, in_cluster=False)
    scope = node_scopes.read(selection)
    assert list(node_scopes.nodes(prod, scope).values_list("name", flat=True)) == names
    assert names == [
        node.name
        for node in Node.objects.filter(in_cluster=True)
        if scope.covers(name=node.name, pool=node.pool, labels=node.labels, setting=prod.topology)
    ]
    assert scopes.parse(scope.to_json()) == scope


def test_unknown_names_of_each_kind_are_reported(prod: Cluster) -> None:
    add(prod, "a-1", pool="p", labels={RACK: "A", "zone": "z1"})
    add(prod, "a-2", labels={RACK: "B"})
    for selection, names in (
        ({"nodes": ["x", "a-1", "y"]}, ["x", "y"]),
        ({"pools": ["p", "q"]}, ["q"]),
        ({"labels": ["zone=z9", "zone"]}, ["zone=z9"]),
        ({"domains": {"rack": ["A", "Z"]}}, ["Z"]),
        ({"labels": ["zone=z1", f"{RACK}=B"]}, []),  # each is known, and no node has both
    ):
        assert node_scopes.unknown(prod, node_scopes.read(selection)) == names
    with pytest.raises(FieldError) as refused:
        scope_checks.select(prod, node_scopes.read({"labels": ["zone=z1", f"{RACK}=B"]}))
    assert (refused.value.field, refused.value.reason.code) == ("labels", "scope_without_nodes")
