"""Parked nodes: names that agents enrolled or reported and that the cluster has never listed.

They are shown as unknown nodes. Guards do not count them, and nothing acts on them. A parked node becomes an ordinary
one when the watch lists it.
"""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Q, QuerySet

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.lib import doorbell
from kcover_portal.runtime.services import retention

MAX_PARKED_NODES = 200  # of one cluster; more names are not enrolled
PARKED_NODE_RETENTION = retention.time(Node)


def in_cluster(cluster: Cluster, name: str) -> bool:
    """Returns whether the cluster lists a node of this name."""
    return Node.objects.filter(cluster=cluster, name=name, in_cluster=True).exists()


def listed(cluster: Cluster, names: Iterable[str]) -> frozenset[str]:
    """Returns those of the names that the cluster lists."""
    rows = Node.objects.filter(cluster=cluster, name__in=set(names), in_cluster=True)
    return frozenset(rows.values_list("name", flat=True))


def parked(cluster: Cluster) -> QuerySet[Node]:
    """Returns the parked nodes of the cluster."""
    return Node.objects.filter(cluster=cluster, in_cluster=False, synced_at=None, gone_at=None)


def park(cluster: Cluster, name: str, *, now: datetime) -> bool:
    """Stores a name that the cluster does not list.

    Returns False if the cluster has MAX_PARKED_NODES parked nodes already and this is not one of them.
    """
    if Node.objects.filter(cluster=cluster, name=name).exists():
        return True
    if parked(cluster).count() >= MAX_PARKED_NODES:
        return False
    node, _ = Node.objects.get_or_create(cluster=cluster, name=name, defaults={"created_at": now})
    doorbell.publish("node", node.pk, cluster=cluster.name)
    return True


def silent(cluster: Cluster, *, now: datetime) -> QuerySet[Node]:
    """Returns the parked nodes without a report within PARKED_NODE_RETENTION."""
    since = now - PARKED_NODE_RETENTION
    return parked(cluster).filter(Q(agent=None) | Q(agent__seen_at__lt=since), created_at__lt=since)


def remove_silent(cluster: Cluster, *, now: datetime) -> list[str]:
    """Deletes the silent parked nodes of the cluster with their faults; returns their names."""
    names = list(silent(cluster, now=now).order_by("name").values_list("name", flat=True))
    if names:
        silent(cluster, now=now).filter(name__in=names).delete()
        doorbell.publish("node", 0, cluster=cluster.name)
    return names
