"""The nodes of a storm: what happened to each of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.console.reads import answers, fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.lib import localization
from kcover_portal.rescue.models import Decision


@dataclass(frozen=True, slots=True)
class StormNode:
    """A node of a storm. ``tile``: None if the cluster has no such node.

    ``because``: what was decided last about it, "" if nothing was.
    """

    name: str
    tile: fleet.Tile | None = None
    isolated: bool = False
    because: str = ""


def nodes_of(storm: Incident, *, now: datetime) -> Sequence[StormNode]:
    """The nodes by name, each with what was decided last about its open faults."""
    rows = list(Node.objects.filter(cluster=storm.cluster, name__in=storm.scope))
    tiles = fleet.tiles(accounts.Scope.of(storm.cluster), now=now, nodes=[row.pk for row in rows])
    by_name = {tile.name: tile for tile in tiles}
    isolated = {row.name for row in rows if row.unschedulable}
    decided = Decision.objects.filter(node__in=rows, incident__state=Incident.State.OPEN)
    newest = {row.node.name: row for row in decided.select_related("node", "incident").order_by("pk") if row.reasons}
    because = {name: localization.say(reasons.both(*answers.of(row))) for name, row in newest.items()}
    return [StormNode(name, by_name.get(name), name in isolated, because.get(name, "")) for name in storm.scope]
