"""The fleet map: nodes in groups by pool, rack, leaf switch or NVLink domain, each in a place that does not change."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from kcover import reasons
from kcover.nodes import topology
from kcover_portal.accounts.queries import Scope
from kcover_portal.console import presentation
from kcover_portal.console.badge import Badge
from kcover_portal.console.list_query import ParameterProblem
from kcover_portal.console.reads import fleet
from kcover_portal.console.reads.domain_labels import DomainLabels
from kcover_portal.console.reads.fleet import Tile
from kcover_portal.fleet.models import Node
from kcover_portal.shared_reads import parameters

GROUPINGS: Final = ("pool", *(domain for domain in topology.DOMAINS if domain != "pool"))
ZOOMS: Final = (0, 3, 4, 7, 9, 12)  # pixels of a GPU's side; 0: a node is one mark
NUMBER = re.compile(r"(\d+)")
PARAMETERS: Final = ("by", "state", "find", "zoom")


@dataclass(frozen=True, slots=True)
class MapChoice:
    """How a person looks at the map; the parameters of the address.

    ``states``: those that stay bright, all if empty. ``find``: part of the names that stay bright. ``zoom``: one of
    ``ZOOMS``, None to fit the fleet.
    """

    by: str = "pool"
    states: Sequence[str] = ()
    find: str = ""
    zoom: int | None = None
    problems: Sequence[ParameterProblem] = ()

    @property
    def narrows(self) -> bool:
        """Returns whether only some nodes are looked for."""
        return bool(self.states or self.find)

    def covers(self, tile: Tile) -> bool:
        """Returns whether the node is one that is looked for."""
        return (not self.states or tile.state in self.states) and self.find.lower() in tile.name.lower()


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes of one place of one cluster, by name; ``query`` opens the list of just these nodes, "" if none does."""

    cluster: str
    name: str
    query: str
    tiles: Sequence[Tile]

    @property
    def counts(self) -> list[tuple[str, Badge, int]]:
        """The number of nodes in each state, most urgent first, without states that have no nodes."""
        found = Counter(tile.state for tile in self.tiles)
        return [(state, look, found[state]) for state, look in presentation.NODE.items() if found[state]]


def choice(given: Mapping[str, str]) -> MapChoice:
    """Reads the parameters of an address; what has no effect is a problem, and the default applies."""
    problems = [
        ParameterProblem(name, value, parameters.unknown(name, PARAMETERS))
        for name, value in given.items()
        if name not in PARAMETERS
    ]
    by, zoom = given.get("by", "pool"), given.get("zoom", "")
    states = [state for state in given.get("state", "").split(",") if state]
    for name, values, known in (
        ("by", [by], GROUPINGS),
        ("state", states, tuple(presentation.NODE)),
        ("zoom", [zoom] if zoom else [], tuple(str(one) for one in ZOOMS)),
    ):
        problems += [
            ParameterProblem(name, value, reasons.of("parameter_not_choice", given=value, known=", ".join(known)))
            for value in values
            if value not in known
        ]
    return MapChoice(
        by=by if by in GROUPINGS else "pool",
        states=[state for state in states if state in presentation.NODE],
        find=given.get("find", "").strip(),
        zoom=int(zoom) if zoom in {str(one) for one in ZOOMS} else None,
        problems=problems,
    )


def groups(scope: Scope, by: str, *, now: datetime) -> list[Group]:
    """The GPU nodes in the scope by group; groups and nodes by name, so that no state moves a node.

    As many queries as ``fleet.tiles``, and two more for a domain that labels name.
    """
    places = {} if by == "pool" else _places(scope, by)
    found: dict[tuple[str, str], list[Tile]] = defaultdict(list)
    queries: dict[tuple[str, str], str] = {}
    for tile in fleet.tiles(scope, now=now):
        key, name = ("pool", tile.pool) if by == "pool" else places.get(tile.pk, ("", ""))
        where = {"pool": name} if by == "pool" else {"label": f"{key}={name}"}
        group = tile.cluster, name
        found[group].append(tile)
        queries[group] = urlencode({"cluster": tile.cluster, **where}) if name else ""
    return [
        Group(cluster, name, queries[cluster, name], sorted(members, key=lambda tile: natural(tile.name)))
        for (cluster, name), members in sorted(
            found.items(), key=lambda one: (natural(one[0][0]), not one[0][1], natural(one[0][1]))
        )
    ]


def natural(name: str) -> list[str | int]:
    """A sort key that puts rack-9 before rack-10."""
    return [int(part) if index % 2 else part for index, part in enumerate(NUMBER.split(name))]


def matching(found: Iterable[Group], chosen: MapChoice) -> list[Group]:
    """The groups with only the nodes that are looked for, without groups that have none."""
    kept = [
        Group(group.cluster, group.name, group.query, [tile for tile in group.tiles if chosen.covers(tile)])
        for group in found
    ]
    return [group for group in kept if group.tiles]


def packed(found: Iterable[Group]) -> str:
    """The map in JSON as the canvas reads it: states by number, a node as [name, state, GPUs or marks of each].

    Each group is a line of its own, so that the canvas can read them one by one, and only those that changed.
    """
    states = [
        {"name": name, "label": str(look.label), "tone": look.tone, "sign": look.sign}
        for name, look in presentation.NODE.items()
    ]
    groups = [
        {
            "cluster": group.cluster,
            "name": group.name,
            "nodes": [
                [tile.name, fleet.URGENCY[tile.state], tile.marks if "x" in tile.marks else tile.gpus]
                for tile in group.tiles
            ],
        }
        for group in found
    ]
    lines = ",\n".join(json.dumps(group, separators=(",", ":")) for group in groups)
    return f'{{"states":{json.dumps(states, separators=(",", ":"))},"groups":[\n{lines}\n]}}'


def _places(scope: Scope, domain: str) -> dict[int, tuple[str, str]]:
    """The label (key, value) that says where each node is, by node key; nodes without one are left out."""
    labels = DomainLabels(scope, domain)
    rows = labels.read(scope.rows(Node.objects.filter(gone_at=None), node="")).order_by()
    found = (
        (pk, labels.of(cluster, values)) for pk, cluster, *values in rows.values_list("pk", "cluster_id", *labels.names)
    )
    return {pk: label for pk, label in found if label}
