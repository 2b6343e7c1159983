"""Which nodes may be tested now: not those that are excluded, in maintenance, in a rescue, or not Ready."""

from collections.abc import Collection
from datetime import datetime

from kcover import reasons
from kcover.decisions import guards
from kcover.plans import lifecycle
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.rescue.models import Rescue


def excluded(cluster: Cluster, nodes: Collection[Node], *, now: datetime) -> set[int]:
    """The keys of the nodes that are excluded by their label or in maintenance."""
    windows = [window for window in fleet.maintenance(cluster, now=now) if window.starts_at <= now]
    return {
        node.pk
        for node in nodes
        if node.labels.get(guards.EXCLUDE_LABEL) == "true" or any(window.covers(node) for window in windows)
    }


def obstacles(
    cluster: Cluster, nodes: Collection[Node], *, named: Collection[str] = (), now: datetime
) -> dict[int, reasons.Reason]:
    """Why nodes cannot be tested now, by key, as far as the portal's rows say.

    ``named``: nodes that were asked for by name, such as those of a validation. Their own rescue and maintenance are no
    obstacles.
    """
    spared = excluded(cluster, nodes, now=now)
    keys = [node.pk for node in nodes]
    rescued = set(
        Rescue.objects.filter(node__in=keys, state__in=lifecycle.OPEN_RESCUE).values_list("node_id", flat=True)
    )
    found = {}
    for node in nodes:
        if not node.in_cluster:
            found[node.pk] = reasons.of("pair_node_gone", node=node.name)
        elif node.pk in spared and node.name not in named:
            found[node.pk] = reasons.of("pair_node_excluded", node=node.name)
        elif node.pk in rescued and node.name not in named:
            found[node.pk] = reasons.of("pair_node_in_rescue", node=node.name)
        elif not node.ready:
            found[node.pk] = reasons.of("pair_node_not_ready", node=node.name)
    return found
