"""The nodes of a scope in the database, and the values that a cluster has for each kind of scope."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.db.models import Case, Count, F, Min, QuerySet, TextField, Value, When
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, NullIf

from kcover.nodes import scopes, topology
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.lib.errors import FieldError

WHOLE: Final = scopes.Scope()
MAX_VALUES: Final = 500  # known values of a kind that are offered


def read(document: Mapping[str, Any]) -> scopes.Scope:
    """Returns the scope in the keys ``scopes.KINDS`` of a request. Raises FieldError."""
    try:
        return scopes.parse(document)
    except scopes.ScopeError as error:
        raise FieldError(error.field, error.reason) from error


def nodes(cluster: Cluster, scope: scopes.Scope) -> QuerySet[Node]:
    """Returns the nodes of the scope that the cluster has now; the same as ``Scope.covers`` for each node."""
    rows = Node.objects.filter(cluster=cluster, in_cluster=True)
    match scope.kind:
        case "nodes":
            return rows.filter(name__in=scope.nodes)
        case "pools":
            return rows.filter(pool__in=scope.pools)
        case "domains":
            return rows.annotate(place=_place(cluster, scope.domain)).filter(place__in=scope.values)
        case "labels":
            for number, (key, value) in enumerate(scope.labels):
                if value is None:
                    rows = rows.filter(labels__has_key=key)
                else:
                    rows = rows.alias(**{f"label_{number}": _label(key)}).filter(**{f"label_{number}": value})
    return rows


def covers(scope: scopes.Scope, node: Node, cluster: Cluster) -> bool:
    """Returns whether the node is in a scope of the cluster, which is the node's own."""
    return scope.covers(name=node.name, pool=node.pool, labels=node.labels, setting=cluster.topology)


def unknown(cluster: Cluster, scope: scopes.Scope, *, among: QuerySet[Node] | None = None) -> list[str]:
    """Returns the names, selectors or values of the scope that no node has, in their order.

    ``among``: the nodes of the cluster that the caller may see; default all.
    """
    rows = Node.objects.filter(cluster=cluster, in_cluster=True) if among is None else among
    match scope.kind:
        case "nodes":
            known = set(rows.filter(name__in=scope.nodes).values_list("name", flat=True))
            return [name for name in scope.nodes if name not in known]
        case "pools":
            known = set(rows.filter(pool__in=scope.pools).values_list("pool", flat=True).distinct())
            return [name for name in scope.pools if name not in known]
        case "domains":
            found = rows.annotate(place=_place(cluster, scope.domain)).filter(place__in=scope.values)
            known = set(found.values_list("place", flat=True).distinct())
            return [name for name in scope.values if name not in known]
        case "labels":
            single = [scopes.Scope(labels=(pair,)) for pair in scope.labels]
            return [one.selectors[0] for one in single if not nodes(cluster, one).filter(pk__in=rows).exists()]
    return []


def values(cluster: Cluster, kind: str, *, among: QuerySet[Node], like: str = "") -> list[tuple[str, int]]:
    """Returns the values of a kind with their numbers of nodes: names, pools, or those of a domain.

    Those with GPU nodes come first, each part by name. ``like``: only values that contain this text. Labels have no
    values to offer.
    """
    rows = among.filter(cluster=cluster, in_cluster=True).order_by()
    found: dict[str, Combinable] = {"nodes": F("name"), "pools": F("pool")}
    if kind in scopes.DOMAINS:
        found[kind] = _place(cluster, kind)
    if kind not in found:
        return []
    named = rows.annotate(value=found[kind]).exclude(value="").filter(value__icontains=like)
    gpus_first = Min(Case(When(gpus__gt=0, then=Value(0)), default=Value(1)))
    counted = named.values("value").annotate(number=Count("pk"), bare=gpus_first).order_by("bare", "value")
    return [(value, number) for value, number in counted.values_list("value", "number")[:MAX_VALUES]]


def _label(key: str) -> Combinable:
    return Cast(KeyTextTransform(key, "labels"), TextField())


def _place(cluster: Cluster, domain: str) -> Combinable:
    """The value of a domain's label as ``topology.value_of`` finds it; "" without one."""
    keys: Sequence[str] = topology.label_keys(cluster.topology, domain)
    empty = Value("", output_field=TextField())
    return Coalesce(*(NullIf(_label(key), empty) for key in keys), empty, output_field=TextField())
