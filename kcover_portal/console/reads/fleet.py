"""The state of every node as people see it, in one pass over plain values."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import BooleanField, Count, ExpressionWrapper, Q, Sum

from kcover.plans import lifecycle
from kcover_portal.accounts.queries import Scope
from kcover_portal.console import presentation
from kcover_portal.console.badge import Badge
from kcover_portal.console.fault_names import fault_name
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Gpu, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.rescue.queries import needs_person

URGENCY = {state: place for place, state in enumerate(presentation.NODE)}


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
    marks: str = ""  # of the GPUs, if a fault names one: a character each, x for a faulty one
    rescue: int | None = None
    is_silent: bool = False  # its agent, whatever the state of the node

    @property
    def devices(self) -> str:
        """A character for each GPU: x if an open fault names it."""
        return self.marks or "." * self.gpus

    @property
    def look(self) -> Badge:
        return presentation.of("node", self.state)


@dataclass(frozen=True, slots=True)
class Summary:
    """The number of GPU nodes and GPUs, and the tiles of all nodes that may not be healthy."""

    nodes: int
    gpus: int
    troubled: Sequence[Tile]

    @property
    def counts(self) -> Counter[str]:
        """The number of nodes in each state."""
        found = Counter(tile.state for tile in self.troubled)
        found["healthy"] += max(0, self.nodes - len(self.troubled))  # a node may have come between the queries
        return found


def state_of(
    *,
    in_cluster: bool,
    ready: bool,
    unschedulable: bool,
    silent: bool,
    faulty: bool,
    left: bool,
    rescue: str | None,
    awaiting: bool,
    in_repair: bool,
    held_back: bool,
) -> str:
    """The state of a node: the most urgent one that applies, in the order of ``presentation.NODE``."""
    if left:
        return "attention"
    if rescue:
        if in_repair:
            return "repair"
        return "approval" if awaiting else "held" if rescue == Rescue.State.HELD else "healing"
    if faulty:
        return "held" if held_back else "faulty"
    if not in_cluster:
        return "unknown"
    if not ready:
        return "not-ready"
    if silent:
        return "silent"
    return "cordoned" if unschedulable else "healthy"


def shown_status(node: Node, tile: Tile | None) -> str:
    """The state of a node in lists, by which ``views.node_status`` filters. The node must be read with its agent."""
    if node.gone_at is not None:
        return "gone"
    if node.gpus == 0 and getattr(node, "agent", None) is None and node.in_cluster:
        return "other"
    return tile.state if tile else "unknown"


def tiles(scope: Scope, *, now: datetime, nodes: Collection[int] | None = None) -> list[Tile]:
    """Every GPU node in the scope (or those with the given keys) with its state.

    Six queries, regardless of their number.
    """
    selected = _gpu_nodes(scope) if nodes is None else scope.where(node="") & Q(gone_at=None, pk__in=nodes)
    return _tiles(selected, _node_relations(scope, nodes), now=now)


def summary(scope: Scope, *, now: datetime) -> Summary:
    """Counts of nodes and GPUs, and tiles of nodes that may not be healthy."""
    relations = _node_relations(scope)
    silent = Q(agent__seen_at__lt=now - queries.AGENT_SILENT_AFTER)
    troubled = Q(in_cluster=False) | Q(ready=False) | Q(unschedulable=True) | silent | Q(pk__in=relations.nodes)
    totals = Node.objects.filter(_gpu_nodes(scope)).order_by().aggregate(nodes=Count("pk"), gpus=Sum("gpus"))
    return Summary(totals["nodes"], totals["gpus"] or 0, _tiles(_gpu_nodes(scope) & troubled, relations, now=now))


@dataclass(frozen=True, slots=True)
class _NodeRelations:
    """Faults, rescues and decisions of nodes, by node key."""

    faults: dict[int, list[dict[str, Any]]]
    rescues: dict[int, tuple[int, str, bool, bool]]
    left: dict[int, int]
    held_back: set[int]

    @property
    def nodes(self) -> set[int]:
        return {*self.faults, *self.rescues, *self.left, *self.held_back}


def _node_relations(scope: Scope, nodes: Collection[int] | None = None) -> _NodeRelations:
    where = scope.where() if nodes is None else scope.where() & Q(node__in=nodes)
    rescues, left = _rescues(where)
    return _NodeRelations(_faults(where), rescues, left, _held_back(where))


def _gpu_nodes(scope: Scope) -> Q:
    """The GPU nodes in the scope.

    A node without GPUs in its capacity but with an agent has lost its GPUs and counts. A node with neither does not
    count.
    """
    return scope.where(node="") & Q(gone_at=None) & (Q(gpus__gt=0) | Q(agent__isnull=False) | Q(in_cluster=False))


def _tiles(selected: Q, relations: _NodeRelations, *, now: datetime) -> list[Tile]:
    silent = ExpressionWrapper(Q(agent__seen_at__lt=now - queries.AGENT_SILENT_AFTER), output_field=BooleanField())
    columns = ("pk", "cluster__name", "name", "pool", "model", "gpus", "in_cluster", "ready", "unschedulable", "silent")
    found = []
    for pk, cluster, name, pool, model, gpus, in_cluster, ready, unschedulable, quiet in (
        Node.objects.filter(selected).annotate(silent=silent).order_by().values_list(*columns)
    ):
        rescue = relations.rescues.get(pk)
        state = state_of(
            in_cluster=in_cluster,
            ready=ready,
            unschedulable=unschedulable,
            silent=bool(quiet),
            faulty=pk in relations.faults,
            left=pk in relations.left,
            rescue=rescue[1] if rescue else None,
            awaiting=rescue[2] if rescue else False,
            in_repair=rescue[3] if rescue else False,
            held_back=pk in relations.held_back,
        )
        opened = rescue[0] if rescue else relations.left.get(pk)
        faults = [fault_name(fault["kind"], fault["code"]) for fault in relations.faults.get(pk, ())]
        found.append(
            Tile(pk, cluster, name, pool, model, gpus, state, faults=faults, rescue=opened, is_silent=bool(quiet))
        )
    _mark_devices(found, relations.faults)
    return found


def _faults(where: Q) -> dict[int, list[dict[str, Any]]]:
    """Open faults by node, without application faults."""
    by_node: dict[int, list[dict[str, Any]]] = defaultdict(list)
    rows = Incident.objects.filter(where, state=Incident.State.OPEN, is_user_fault=False).order_by()
    for row in rows.values("node_id", "kind", "code", "device", "gpu_uuid"):
        by_node[row["node_id"]].append(dict(row))
    return by_node


def _rescues(where: Q) -> tuple[dict[int, tuple[int, str, bool, bool]], dict[int, int]]:
    """Open rescues as (key, state, awaiting approval, in repair) by node; rescues that left theirs to people."""
    rows = Rescue.objects.filter(where)
    waiting = set(rows.filter(needs_person.AWAITING_APPROVAL).values_list("node_id", flat=True))
    opened = rows.filter(state__in=lifecycle.OPEN_RESCUE).annotate(
        away=ExpressionWrapper(needs_person.IN_REPAIR, output_field=BooleanField())
    )
    columns = opened.values_list("node_id", "pk", "state", "away")
    left = rows.filter(needs_person.LEFT_TO_PEOPLE).order_by("pk").values_list("node_id", "pk")
    return {node: (pk, state, node in waiting, away) for node, pk, state, away in columns}, dict(left)


def _held_back(where: Q) -> set[int]:
    """Nodes with a fault whose newest decision is blocked by a guard."""
    newest: dict[int | None, tuple[int, str]] = {}
    rows = Decision.objects.filter(where, incident__state=Incident.State.OPEN, incident__is_user_fault=False).order_by(
        "pk"
    )
    for incident, node, answer in rows.values_list("incident_id", "node_id", "answer"):
        newest[incident] = (node, answer)
    return {node for node, answer in newest.values() if answer == Decision.Answer.HOLD}


def _mark_devices(found: Iterable[Tile], faults: dict[int, list[dict[str, Any]]]) -> None:
    """Set ``marks`` for GPUs that an open fault names."""
    wanted = {node for node, rows in faults.items() if any(row["device"] or row["gpu_uuid"] for row in rows)}
    gpus: dict[int, list[tuple[int, str, str]]] = defaultdict(list)
    for node, index, uuid, pci in Gpu.objects.filter(node__in=wanted).values_list("node_id", "index", "uuid", "pci"):
        gpus[node].append((index, uuid, pci))
    for tile in found:
        if tile.pk not in gpus:
            continue
        marks = ["."] * tile.gpus
        for index, uuid, pci in gpus[tile.pk]:
            if index < len(marks) and any(names(row, uuid=uuid, pci=pci) for row in faults[tile.pk]):
                marks[index] = "x"
        tile.marks = "".join(marks)


def names(fault: dict[str, Any], *, uuid: str, pci: str) -> bool:
    """Returns whether a fault names this GPU; PCI addresses match with or without the function part."""
    if fault["gpu_uuid"]:
        return bool(fault["gpu_uuid"] == uuid)
    device = str(fault["device"])
    return bool(device) and (device == uuid or (bool(pci) and _slot(device) == _slot(pci)))


def _slot(address: str) -> str:
    return address.rsplit(".", 1)[0].lower()
