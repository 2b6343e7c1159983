"""Nodes that Kubernetes reports as not Ready, before their agents count as silent. Only shown: no incident, no need."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Q

from kcover.nodes import silence
from kcover_portal.console.reads.fleet import Tile
from kcover_portal.fleet.models import Maintenance, Node

GRACE: Final = silence.HEARTBEAT  # Kubernetes has waited by itself before: some 40 s for a kubelet that is silent
STATE: Final = "not-ready"


@dataclass(frozen=True, slots=True)
class NotReady:
    """A node. ``kubelet_silent``: its kubelet has not reported (Ready is Unknown); else it says so itself (False).

    ``since``: when the watch first saw it so. ``agent_seen_at``: the last report of its agent; None without an agent.
    ``is_agent_silent``: that is too long ago.
    """

    cluster: str
    name: str
    since: datetime
    kubelet_silent: bool
    agent_seen_at: datetime | None
    is_agent_silent: bool


def of(tiles: Iterable[Tile], *, out_of_reach: Collection[str], now: datetime) -> Sequence[NotReady]:
    """Those of the nodes in the state ``not-ready`` that nobody works on, the first by name. At most two queries.

    A rescue or a fault gives a node another state. Left out are nodes under maintenance, nodes of clusters that are
    out of reach, and nodes that were Ready within GRACE.
    """
    tiles = list(tiles)
    wanted = [tile.pk for tile in tiles if tile.state == STATE and tile.cluster not in out_of_reach]
    if not wanted:
        return []
    rows = Node.objects.filter(pk__in=wanted, in_cluster=True, ready=False, unready_since__lte=now - GRACE)
    here = Q(cluster=None) | Q(cluster__name__in={tile.cluster for tile in tiles})
    windows = list(Maintenance.objects.filter(here, starts_at__lte=now, ends_at__gt=now).select_related("cluster"))
    return [
        NotReady(
            node.cluster.name,
            node.name,
            node.unready_since or now,
            node.conditions.get("Ready", "Unknown") == "Unknown",
            seen_at := agent.seen_at if (agent := getattr(node, "agent", None)) is not None else None,
            silence.of(seen_at, now=now) == "silent",
        )
        for node in rows.select_related("cluster", "agent").order_by("cluster__name", "name")
        if not any(window.covers(node) for window in windows)
    ]
