"""The nodes that a node pings if none are named: the next ones in the circle of the cluster's names."""

from collections.abc import Sequence

from django.db.models import QuerySet

from kcover_portal.fleet.models import Cluster, Node

MAX_NEIGHBOURS = 32

NamedAddress = tuple[str, str]


def circle(cluster: Cluster) -> list[NamedAddress]:
    """The names and addresses of all nodes that answer pings, sorted by name."""
    return list(_reachable(cluster).values_list("name", "address"))


def next_in(circle: Sequence[NamedAddress], name: str) -> list[str]:
    """The addresses of the neighbours of a node."""
    after = [address for other, address in circle if other > name]
    before = [address for other, address in circle if other < name]
    return [*after, *before][:MAX_NEIGHBOURS]


def addresses(cluster: Cluster, name: str) -> list[str]:
    """The same from two short queries, for one node of a large cluster."""
    nodes = _reachable(cluster).values_list("address", flat=True)
    after = list(nodes.filter(name__gt=name)[:MAX_NEIGHBOURS])
    return [*after, *nodes.filter(name__lt=name)[: MAX_NEIGHBOURS - len(after)]]


def _reachable(cluster: Cluster) -> QuerySet[Node]:
    nodes = Node.objects.filter(cluster=cluster, in_cluster=True, ready=True, gpus__gt=0)
    return nodes.exclude(address="").order_by("name")
