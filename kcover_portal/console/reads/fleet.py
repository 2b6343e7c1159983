"""The state of every node as people see it, in one pass over plain values."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Q

from kcover import lifecycle
from kcover_portal.console import looks
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster, Gpu, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Decision, Rescue

URGENCY = {state: place for place, state in enumerate(looks.NODE)}
TROUBLED = tuple(state for state in looks.NODE if state not in ("healthy", "unknown"))

# A rescue that waits for a yes says so in these words (rescue.services.steering finds it by them, too).
AWAITING = Q(state=Rescue.State.HELD, hold=Rescue.Hold.APPROVAL)
# What a person must see to: a rescue that asks for one, while it is open or while its marks are on the node.
LEFT_TO_PEOPLE = (Q(needs_human=True, state__in=lifecycle.OPEN_RESCUE) & ~AWAITING) | (
    (Q(needs_human=True) | Q(state=Rescue.State.FAILED)) & Q(state__in=lifecycle.CLOSED_RESCUE) & ~Q(marks={})
)


@dataclass(slots=True)
class Tile:
    """One node on the map: its state and, for each GPU in order, whether it has an open fault."""

    pk: int
    cluster: str
    name: str
    pool: str
    model: str
    gpus: int
    state: str
    faults: list[str] = field(default_factory=list)
    devices: str = ""
    rescue: int | None = None

    @property
    def look(self) -> looks.Look:
        """How the state looks."""
        return looks.of("node", self.state)


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes of one pool of one cluster, worst first."""

    cluster: str
    pool: str
    tiles: Sequence[Tile]

    @property
    def counts(self) -> list[tuple[str, looks.Look, int]]:
        """How many nodes are in each state, most urgent first, states without nodes left out."""
        found = Counter(tile.state for tile in self.tiles)
        return [(state, look, found[state]) for state, look in looks.NODE.items() if found[state]]

    @property
    def troubled(self) -> list[Tile]:
        """The nodes of the pool that are anything but healthy."""
        return [tile for tile in self.tiles if tile.state != "healthy"]


def state_of(
    *,
    known: bool,
    ready: bool,
    unschedulable: bool,
    silent: bool,
    faulty: bool,
    left: bool,
    rescue: str | None,
    awaiting: bool,
    held_back: bool,
) -> str:
    """The one word for a node, the most urgent that holds (``looks.NODE`` is in that order)."""
    if left:
        return "attention"
    if rescue:
        return "approval" if awaiting else "held" if rescue == Rescue.State.HELD else "healing"
    if faulty:
        return "held" if held_back else "faulty"
    if not known:
        return "unknown"
    if not ready:
        return "not-ready"
    if silent:
        return "silent"
    return "cordoned" if unschedulable else "healthy"


def tiles(clusters: Collection[Cluster], *, now: datetime, nodes: Collection[int] | None = None) -> list[Tile]:
    """Every GPU node of the clusters (or those named by key) with its state; six queries, whatever their number.

    A node that has no GPUs by its capacity but an agent is one that lost them; one with neither is none of ours.
    """
    ours = Q(gpus__gt=0) | Q(agent__isnull=False) | Q(known=False)
    within = Q(cluster__in=clusters) & (ours if nodes is None else Q(pk__in=nodes))
    beside = Q(cluster__in=clusters) if nodes is None else Q(cluster__in=clusters, node__in=nodes)
    faults = _faults(beside)
    rescues, left = _rescues(beside)
    held_back = _held_back(beside)
    columns = ("pk", "cluster_id", "name", "pool", "model", "gpus", "known", "ready", "unschedulable", "agent__seen_at")
    names = {cluster.pk: cluster.name for cluster in clusters}
    found = []
    for pk, cluster, name, pool, model, gpus, known, ready, unschedulable, seen_at in (
        Node.objects.filter(within, gone_at=None).order_by().values_list(*columns)
    ):
        rescue = rescues.get(pk)
        state = state_of(
            known=known,
            ready=ready,
            unschedulable=unschedulable,
            silent=seen_at is not None and now - seen_at > queries.AGENT_SILENT_AFTER,
            faulty=pk in faults,
            left=pk in left,
            rescue=rescue[1] if rescue else None,
            awaiting=rescue[2] if rescue else False,
            held_back=pk in held_back,
        )
        tile = Tile(pk, names[cluster], name, pool, model, gpus, state, rescue=rescue[0] if rescue else left.get(pk))
        tile.faults = [f"{fault['kind']} {fault['code']}" for fault in faults.get(pk, ())]
        found.append(tile)
    _mark_devices(found, faults)
    return found


def _faults(where: Q) -> dict[int, list[dict[str, Any]]]:
    """Open faults of nodes (a program's own are none), by node."""
    by_node: dict[int, list[dict[str, Any]]] = defaultdict(list)
    rows = Incident.objects.filter(where, state=Incident.State.OPEN, program=False).order_by()
    for row in rows.values("node_id", "kind", "code", "device", "gpu_uuid"):
        by_node[row["node_id"]].append(dict(row))
    return by_node


def _rescues(where: Q) -> tuple[dict[int, tuple[int, str, bool]], dict[int, int]]:
    """Open rescues as (key, state, awaiting a yes) by node, and the rescues that left their node to people."""
    rows = Rescue.objects.filter(where)
    waiting = set(rows.filter(AWAITING).values_list("node_id", flat=True))
    opened = rows.filter(state__in=lifecycle.OPEN_RESCUE).values_list("node_id", "pk", "state")
    left = rows.filter(LEFT_TO_PEOPLE).order_by("pk").values_list("node_id", "pk")
    return {node: (pk, state, node in waiting) for node, pk, state in opened}, dict(left)


def _held_back(where: Q) -> set[int]:
    """Nodes with a fault that a rule would act on, were it not for a guard: the newest decision says so."""
    newest: dict[int | None, tuple[int, str]] = {}
    rows = Decision.objects.filter(where, incident__state=Incident.State.OPEN, incident__program=False).order_by("pk")
    for incident, node, answer in rows.values_list("incident_id", "node_id", "answer"):
        newest[incident] = (node, answer)
    return {node for node, answer in newest.values() if answer == Decision.Answer.HOLD}


def _mark_devices(found: Iterable[Tile], faults: dict[int, list[dict[str, Any]]]) -> None:
    """Fills ``devices``: a character a GPU, x where an open fault names it; a fault that names none marks no GPU."""
    wanted = {node for node, rows in faults.items() if any(row["device"] or row["gpu_uuid"] for row in rows)}
    gpus: dict[int, list[tuple[int, str, str]]] = defaultdict(list)
    for node, index, uuid, pci in Gpu.objects.filter(node__in=wanted).values_list("node_id", "index", "uuid", "pci"):
        gpus[node].append((index, uuid, pci))
    for tile in found:
        marks = ["."] * tile.gpus
        for index, uuid, pci in gpus.get(tile.pk, ()):
            if index < len(marks) and any(names(row, uuid=uuid, pci=pci) for row in faults[tile.pk]):
                marks[index] = "x"
        tile.devices = "".join(marks)


def names(fault: dict[str, Any], *, uuid: str, pci: str) -> bool:
    """Whether a fault names this GPU; addresses may be printed with or without their function part."""
    if fault["gpu_uuid"]:
        return bool(fault["gpu_uuid"] == uuid)
    device = str(fault["device"])
    return bool(device) and (device == uuid or (bool(pci) and _slot(device) == _slot(pci)))


def _slot(address: str) -> str:
    return address.rsplit(".", 1)[0].lower()


def grouped(found: Iterable[Tile]) -> list[Group]:
    """Tiles by cluster and pool; clusters, pools and nodes each with the most urgent first."""
    pools: dict[tuple[str, str], list[Tile]] = defaultdict(list)
    for tile in found:
        pools[tile.cluster, tile.pool].append(tile)
    groups = [
        Group(cluster, pool, sorted(members, key=lambda tile: (URGENCY[tile.state], tile.name)))
        for (cluster, pool), members in pools.items()
    ]
    worst = {group.cluster: len(URGENCY) for group in groups}
    for group in groups:
        worst[group.cluster] = min(worst[group.cluster], URGENCY[group.tiles[0].state])
    return sorted(
        groups, key=lambda group: (worst[group.cluster], group.cluster, URGENCY[group.tiles[0].state], group.pool)
    )


def packed(groups: Iterable[Group]) -> dict[str, Any]:
    """The map as the canvas reads it: states by number, a node as [name, state, GPUs or marks of each]."""
    return {
        "states": [
            {"name": name, "label": str(look.label), "tone": look.tone, "sign": look.sign}
            for name, look in looks.NODE.items()
        ],
        "groups": [
            {
                "cluster": group.cluster,
                "pool": group.pool,
                "nodes": [
                    [tile.name, URGENCY[tile.state], tile.devices if "x" in tile.devices else tile.gpus]
                    for tile in group.tiles
                ],
            }
            for group in groups
        ],
    }
