"""The nodes of a scope, for an act on them.

A scope without nodes, or with a name that the cluster does not have, is refused: a window would protect nothing, and a
typing error must not narrow an act silently.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from django.db.models import QuerySet

from kcover import reasons
from kcover.nodes import scopes
from kcover.values.quote import short_text
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import node_scopes
from kcover_portal.lib.errors import FieldError

MAX_NAMED_POOLS = 10  # in an error message
MAX_NAMED_NODES = 3
MAX_COMPARED_NAMES = 1_000  # alphabetical neighbours of an unknown name, so that a typing error costs little

Fields: TypeAlias = Mapping[str, str]  # the field at which an error about a kind is shown
SAME: Fields = {}


def read(document: Mapping[str, Any], *, pool: str = "", node: str = "") -> scopes.Scope:
    """Returns the scope that ``document`` or one of the older fields names. Raises FieldError."""
    if pool and node:
        raise FieldError("node", reasons.of("pool_and_node"))
    scope = node_scopes.read(document)
    if not (pool or node):
        return scope
    if scope.kind:
        raise FieldError(scope.kind, reasons.of("scope_or_pool_or_node", known=", ".join(scopes.KINDS)))
    return scopes.Scope(pools=(pool,)) if pool else scopes.Scope(nodes=(node,))


def select(
    cluster: Cluster | None,
    scope: scopes.Scope = node_scopes.WHOLE,
    *,
    fields: Fields = SAME,
    among: QuerySet[Node] | None = None,
) -> QuerySet[Node]:
    """Returns the nodes of a scope, at least one, by name; ``cluster`` None means all clusters.

    ``fields``: the field of an error about a kind, where it is another. ``among``: the nodes of the cluster that the
    caller may see, default all; others are as good as absent. Raises FieldError if no node matches, or if a name is
    unknown; the reason names what was probably meant.
    """
    if cluster is None:
        if scope.kind:
            raise FieldError("cluster", reasons.of("cluster_required"))
        everywhere = Node.objects.filter(in_cluster=True)
        if not everywhere.exists():
            raise FieldError("cluster", reasons.of("clusters_without_nodes"))
        return everywhere
    field = fields.get(scope.kind, scope.kind)
    rows = _all(cluster) if among is None else among
    if unknown := node_scopes.unknown(cluster, scope, among=rows):
        if not rows.exists():
            raise FieldError("cluster", reasons.of("cluster_without_nodes", cluster=cluster.name))
        raise FieldError(field, _unknown(cluster, scope, unknown, rows))
    found = node_scopes.nodes(cluster, scope).order_by("name")
    found = found if among is None else found.filter(pk__in=among.values("pk"))
    if not found.exists():
        if not scope.kind:
            raise FieldError("cluster", reasons.of("cluster_without_nodes", cluster=cluster.name))
        raise FieldError(field, without_nodes(cluster, scope))
    return found


def select_for_gpus(cluster: Cluster, scope: scopes.Scope, *, fields: Fields = SAME) -> list[Node]:
    """Returns the nodes of a scope for work on GPUs: of a whole cluster, those that have any. Raises FieldError.

    A selection is taken as it is, so that the act itself refuses a node without GPUs that somebody named.
    """
    found = select(cluster, scope, fields=fields)
    chosen = list(found if scope.kind else found.filter(gpus__gt=0))
    if not chosen:
        raise FieldError(fields.get("", "cluster"), reasons.of("cluster_without_gpus"))
    return chosen


def without_nodes(cluster: Cluster, scope: scopes.Scope) -> reasons.Reason:
    """The reason that no node matches a selection."""
    kind, name = scope.shown
    return reasons.of("scope_without_nodes", cluster=cluster.name, scope=reasons.of(f"scope_{kind}", name=name))


def members(cluster: Cluster | None, scope: scopes.Scope) -> list[str]:
    """Returns the names of the nodes that stay covered whatever becomes of their labels; [] where names select."""
    if cluster is None or scope.kind in ("", "nodes"):
        return []
    return list(node_scopes.nodes(cluster, scope).order_by("name").values_list("name", flat=True))


def _unknown(cluster: Cluster, scope: scopes.Scope, unknown: Sequence[str], rows: QuerySet[Node]) -> reasons.Reason:
    if scope.kind == "pools":
        return _unknown_pool(cluster, unknown[0], rows)
    if len(scope.nodes) == 1:
        return _unknown_node(cluster, unknown[0], rows)
    names = reasons.named([short_text(name) for name in unknown], most=MAX_NAMED_NODES)
    if scope.kind == "nodes":
        return reasons.of("nodes_missing", cluster=cluster.name, nodes=names)
    kind, _ = scope.shown
    return reasons.of("scope_without_nodes", cluster=cluster.name, scope=reasons.of(f"scope_{kind}", name=names))


def _unknown_pool(cluster: Cluster, pool: str, rows: QuerySet[Node]) -> reasons.Reason:
    pools = list(rows.exclude(pool="").order_by("pool").values_list("pool", flat=True).distinct())
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


def _unknown_node(cluster: Cluster, node: str, rows: QuerySet[Node]) -> reasons.Reason:
    near = difflib.get_close_matches(node, _neighbours(node, rows), n=MAX_NAMED_NODES)
    if not near:
        return reasons.of("nodes_missing", cluster=cluster.name, nodes=short_text(node))
    return reasons.of("node_misspelt", cluster=cluster.name, node=short_text(node), near=", ".join(near))


def _neighbours(node: str, rows: QuerySet[Node]) -> Sequence[str]:
    """Returns the names before and after this one in the alphabet."""
    names = rows.values_list("name", flat=True)
    half = MAX_COMPARED_NAMES // 2
    return [*names.filter(name__lt=node).order_by("-name")[:half], *names.filter(name__gt=node).order_by("name")[:half]]


def _all(cluster: Cluster) -> QuerySet[Node]:
    return node_scopes.nodes(cluster, node_scopes.WHOLE)
