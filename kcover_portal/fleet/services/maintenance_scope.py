"""The nodes that a maintenance window covers. A window that covers no node is refused, because it protects nothing."""

import difflib
from collections.abc import Sequence

from django.db.models import QuerySet

from kcover import reasons
from kcover.quote import short_text
from kcover_portal.errors import FieldError
from kcover_portal.fleet.models import Cluster, Node

MAX_NAMED_POOLS = 10  # in an error message
MAX_NAMED_NODES = 3
MAX_COMPARED_NAMES = 1_000  # alphabetical neighbours of an unknown name, so that a typing error costs little


def covered(cluster: Cluster | None, *, pool: str = "", node: str = "") -> QuerySet[Node]:
    """Returns the nodes that a window with this scope covers now; ``cluster`` None means all clusters.

    Raises FieldError if the parts of the scope do not fit together.
    """
    if cluster is None and (pool or node):
        raise FieldError("cluster", reasons.of("cluster_required"))
    if pool and node:
        raise FieldError("node", reasons.of("pool_and_node"))
    scope = {"cluster": cluster, "pool": pool, "name": node}
    return Node.objects.filter(in_cluster=True, **{name: value for name, value in scope.items() if value})


def count_covered(cluster: Cluster | None, *, pool: str = "", node: str = "") -> int:
    """Returns how many nodes a window with this scope covers.

    Raises FieldError if it covers none; the reason names the pools or nodes that were probably meant.
    """
    if count := covered(cluster, pool=pool, node=node).count():
        return count
    if cluster is None:
        raise FieldError("cluster", reasons.of("clusters_without_nodes"))
    if not covered(cluster).exists():
        raise FieldError("cluster", reasons.of("cluster_without_nodes", cluster=cluster.name))
    if pool:
        raise FieldError("pool", _unknown_pool(cluster, pool))
    raise FieldError("node", _unknown_node(cluster, node))


def _unknown_pool(cluster: Cluster, pool: str) -> reasons.Reason:
    pools = list(covered(cluster).exclude(pool="").order_by("pool").values_list("pool", flat=True).distinct())
    if not pools:
        return reasons.of("cluster_without_pools", cluster=cluster.name, pool=short_text(pool))
    near = difflib.get_close_matches(pool, pools, n=len(pools))
    listed = [*near, *(name for name in pools if name not in near)]
    return reasons.of(
        "pool_without_nodes",
        cluster=cluster.name,
        pool=short_text(pool),
        pools=reasons.named(listed, most=MAX_NAMED_POOLS),
    )


def _unknown_node(cluster: Cluster, node: str) -> reasons.Reason:
    near = difflib.get_close_matches(node, _neighbours(cluster, node), n=MAX_NAMED_NODES)
    if not near:
        return reasons.of("nodes_missing", cluster=cluster.name, nodes=short_text(node))
    return reasons.of("node_misspelt", cluster=cluster.name, node=short_text(node), near=", ".join(near))


def _neighbours(cluster: Cluster, node: str) -> Sequence[str]:
    """Returns the names before and after this one in the alphabet."""
    names = covered(cluster).values_list("name", flat=True)
    half = MAX_COMPARED_NAMES // 2
    return [*names.filter(name__lt=node).order_by("-name")[:half], *names.filter(name__gt=node).order_by("name")[:half]]
