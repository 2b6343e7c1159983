"""Reads of incidents."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from kcover.faults import program_context, xid
from kcover.nodes import health
from kcover.values import turns
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import CheckChange, CheckResult, Gpu, Node
from kcover_portal.incidents.models import Incident, Occurrence, teller
from kcover_portal.incidents.queries.seen import (
    LateReport as LateReport,
    seen_after as seen_after,
    seen_in as seen_in,
    seen_since as seen_since,
    seen_within as seen_within,
    told_late as told_late,
)
from kcover_portal.incidents.queries.told_codes import (
    dismissed_codes as dismissed_codes,
    is_by_person as is_by_person,
    open_codes as open_codes,
)
from kcover_portal.lib.prepared import Prepared

MAX_DUE_INCIDENTS = 200  # incidents that one sweep takes up
MAX_PROGRAM_FAULTS = 5_000  # of programs' faults in a cluster; the latest
_PROGRAM_CODES = tuple(str(code) for code in program_context.CODES)


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """The health of a node, and of each of its GPUs by the key of its row."""

    node: health.Health
    gpus: Mapping[int, health.Health]

    @property
    def flapping(self) -> bool:
        """True if a check or fault of the node is flapping."""
        return any(cause.kind == "flapping" for cause in self.node.causes)


def undecided(*, now: datetime) -> QuerySet[Incident]:
    """Open incidents that are due for a decision."""
    return Incident.objects.filter(decide_at__lte=now, state=Incident.State.OPEN)


def due_for_decision(*, now: datetime) -> list[tuple[int, tuple[datetime | None, ...]]]:
    """The first of ``undecided``, each with its due time and the time of its last decision.

    The oldest of each node come first, so that a node with thousands of faults delays no other node. If not all fit,
    the clusters take turns, so that a cluster with thousands of faulty nodes delays no other cluster.
    """
    rows = _DUE.rows(now=now)
    if len(rows) == MAX_DUE_INCIDENTS:
        clusters = undecided(now=now).order_by("cluster").values_list("cluster", flat=True).distinct()
        queues = [_DUE_IN_CLUSTER.rows(now=now, cluster=cluster) for cluster in clusters]
        rows = turns.in_turns(queues, limit=MAX_DUE_INCIDENTS)
    return [(pk, (due, judged)) for pk, due, judged in rows]


def _due(rows: QuerySet[Incident]) -> QuerySet[Incident, tuple[Any, ...]]:
    place = Window(RowNumber(), partition_by=F("node"), order_by=("decide_at", "pk"))
    rows = rows.annotate(place=place).order_by("place", "decide_at", "pk")
    return rows.values_list("pk", "decide_at", "decided_at")[:MAX_DUE_INCIDENTS]


_DUE = Prepared(lambda now: _due(undecided(now=now)), now=datetime)
_DUE_IN_CLUSTER = Prepared(
    lambda now, cluster: _due(undecided(now=now).filter(cluster=cluster)), now=datetime, cluster=int
)


def open_on_nodes(nodes: Sequence[int]) -> list[Incident]:
    """The open incidents of nodes (by key), the newest first."""
    return _OPEN.rows(node=nodes[0]) if len(nodes) == 1 else list(_open(node__in=nodes))


def _open(**nodes: Any) -> QuerySet[Incident]:
    return Incident.objects.filter(**nodes, state=Incident.State.OPEN).order_by("-pk")


_OPEN = Prepared(lambda node: _open(node=node), node=int)


@dataclass(frozen=True, slots=True)
class Witness:
    """A witness of a fault: a source by its name, the node's ``agent`` or the ``portal`` itself."""

    source: str
    first_seen_at: datetime
    last_seen_at: datetime
    count: int


def witnesses(incidents: Collection[int]) -> dict[int, list[Witness]]:
    """The witnesses of incidents (by key), the first one first; one query. Times are the portal's."""
    found: defaultdict[int, dict[str, Witness]] = defaultdict(dict)
    rows = Occurrence.objects.filter(incident__in=incidents).order_by("pk")
    for incident, name, because, at, count in rows.values_list("incident", "witness", "because", "at", "count"):
        source = teller(name, because)
        known = found[incident].get(source)
        first, total = (known.first_seen_at, known.count) if known else (at, 0)
        found[incident][source] = Witness(source, first, at, total + count)
    return {incident: list(named.values()) for incident, named in found.items()}


def program_faults(*, since: datetime, limit: int) -> list[Incident]:
    """Incidents of programs (Xid 13 and 31) on a known GPU that were seen since then, the latest first. No drills."""
    rows = Incident.objects.filter(
        kind="xid", code__in=_PROGRAM_CODES, drill=False, node__in_cluster=True, last_at__gte=since
    ).exclude(device="")
    return list(rows.select_related("node").order_by("-last_at")[:limit])


def program_context_of(incident: Incident, *, now: datetime) -> program_context.Judgement | None:
    """The suspect of a program's fault, from other faults in its cluster; None for all other incidents."""
    if incident.kind != "xid" or incident.code not in _PROGRAM_CODES or not incident.device or incident.node is None:
        return None
    rows = Occurrence.objects.filter(
        incident__cluster=incident.cluster_id,
        incident__kind="xid",
        incident__code__in=_PROGRAM_CODES,
        at__gte=now - program_context.WINDOW,
        drill=False,
    ).exclude(incident__device="")
    columns = rows.order_by("-pk").values_list("node_id", "incident__device", "message")
    sightings = [
        program_context.Sighting(gpu=f"{node} {device}", program=program_context.program_of(message))
        for node, device, message in columns[:MAX_PROGRAM_FAULTS]
    ]
    return program_context.judge(f"{incident.node_id} {incident.device}", sightings)


def open_on(node: Node | int) -> QuerySet[Incident]:
    """Open incidents of a node, newest first, including the faults of user programs."""
    return Incident.objects.filter(node=node, state=Incident.State.OPEN).order_by("-pk")


def has_fatal_fault(node: Node) -> bool:
    """Returns whether a fatal fault of the node itself is open."""
    return open_on(node).filter(severity="fatal", is_user_fault=False).exists()


def faults_since(node: Node, since: datetime, *, boot_id: str = "") -> Sequence[Incident]:
    """Open incidents that are faults of the node.

    With a boot id, those that occurred in this boot, whenever they were delivered. Without one, those that occurred at
    or after ``since`` by the portal's clock, as ``seen_since`` tells.
    """
    if boot_id:
        return _FAULTS_IN_BOOT.rows(node=node.pk, since=since, boot_id=boot_id)
    return _FAULTS_SINCE.rows(node=node.pk, since=since)


_FAULTS_IN_BOOT = Prepared(
    lambda node, since, boot_id: _faults_of(node).filter(seen_in(boot_id) | (Q(boot_id="") & seen_since(since))),
    node=int,
    since=datetime,
    boot_id=str,
)
_FAULTS_SINCE = Prepared(lambda node, since: _faults_of(node).filter(seen_since(since)), node=int, since=datetime)


def _faults_of(node: Node | int) -> QuerySet[Incident]:
    return open_on(node).filter(is_user_fault=False)


def health_of(nodes: Collection[Node], *, now: datetime) -> dict[int, NodeHealth]:
    """The health of nodes (with their agents and clusters) by key. Four queries, regardless of the number of nodes."""
    keys = [node.pk for node in nodes]
    since = now - health.FLAP_WINDOW - health.FLAPPING_ENDS_AFTER
    faults, checks = _faults(keys, since=since), _checks(keys, since=since)
    devices: defaultdict[int, list[tuple[int, health.Gpu]]] = defaultdict(list)
    for pk, node_id, uuid, pci in Gpu.objects.filter(node__in=keys).values_list("pk", "node_id", "uuid", "pci"):
        devices[node_id].append((pk, health.Gpu(uuid=uuid, names=_names(uuid, pci))))
    found = {}
    for node in nodes:
        agent = getattr(node, "agent", None)
        node_faults, node_checks = faults[node.pk], checks[node.pk]
        ready, seen_at = _ready(node, now=now), agent and agent.seen_at
        node_health = health.of_node(
            ready=ready,
            seen_at=seen_at,
            faults=node_faults,
            checks=node_checks,
            now=now,
            out_of_reach=fleet.out_of_reach(node.cluster, now=now),
        )
        gpus = {
            pk: health.of_gpu(gpu, node=node_health, faults=node_faults, checks=node_checks, now=now)
            for pk, gpu in devices[node.pk]
        }
        found[node.pk] = NodeHealth(node_health, gpus)
    return found


def _ready(node: Node, *, now: datetime) -> bool | None:
    """The node's Ready condition in the cluster; None if there is no recent one."""
    watched_at = node.cluster.watched_at
    if not node.in_cluster or watched_at is None or now - watched_at > fleet.OUT_OF_REACH_AFTER:
        return None
    return node.ready


def _faults(nodes: Collection[int], *, since: datetime) -> defaultdict[int, list[health.Fault]]:
    """The faults of each node that are open, or were closed since then."""
    lately = Q(state=Incident.State.OPEN) | Q(closed_at__gte=since)
    rows = Incident.objects.filter(lately, node__in=nodes, is_user_fault=False)
    runs: defaultdict[tuple[int | None, str, str, str], list[Incident]] = defaultdict(list)
    columns = ("node_id", "kind", "code", "device", "gpu_uuid", "severity", "state", "opened_at", "closed_at", "moves")
    for row in rows.order_by("pk").only(*columns, "ended_at"):
        runs[row.node_id, row.kind, row.code, row.device].append(row)
    found: defaultdict[int, list[health.Fault]] = defaultdict(list)
    for (node, kind, code, device), run in runs.items():
        moves = [at for row in run for at in row.moved_at if at >= since]
        fault = health.Fault(
            kind=kind,
            code=code,
            severity=run[-1].severity,
            devices=_names(device, run[-1].gpu_uuid),
            open=any(row.state == Incident.State.OPEN and row.ended_at is None for row in run),
            moves=tuple(moves),
        )
        found[node or 0].append(fault)
    return found


def _checks(nodes: Collection[int], *, since: datetime) -> defaultdict[int, list[health.Check]]:
    """The checks of each node that fail, or whose status changed since then. A first result is not a change."""
    moves: defaultdict[tuple[int, str, str], list[tuple[str, str, datetime]]] = defaultdict(list)
    statuses: dict[tuple[int, str, str], str] = {}
    changes = CheckChange.objects.filter(node__in=nodes, at__gte=since).exclude(before="").order_by("pk")
    columns = ("node_id", "name", "device", "before", "status", "at")
    for node, name, device, before, status, at in changes.values_list(*columns):
        moves[node, name, device].append((before, status, at))
        statuses[node, name, device] = status
    failing = CheckResult.objects.filter(node__in=nodes, status="fail").order_by()
    rows = failing.values_list("node_id", "name", "device", "seen_at", "node__agent__seen_at")
    for node, name, device, seen_at, reported_at in rows:
        if health.counts(name, seen_at=seen_at, reported_at=reported_at):
            statuses[node, name, device] = "fail"
    found: defaultdict[int, list[health.Check]] = defaultdict(list)
    for (node, name, device), status in statuses.items():
        check = health.Check(
            name=name, status=status, device=device, moves=health.status_moves(moves[node, name, device])
        )
        found[node].append(check)
    return found


def _names(*names: str) -> frozenset[str]:
    """All names of a device; addresses are also given as slots."""
    return frozenset(alias for name in names if name for alias in (name, xid.slot(name)) if alias)
