"""The rows that need attention, read as items of one shape."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from django.db.models import Case, IntegerField, QuerySet, Value, When

from kcover import reasons
from kcover.faults import catalog
from kcover.needs import Need
from kcover_portal import needs_person
from kcover_portal.accounts.queries import Scope
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs.models import JobOrder
from kcover_portal.parts.models import Placement
from kcover_portal.repairs import queries as repairs
from kcover_portal.repairs.models import Repair
from kcover_portal.repairs.queries import needs as repair_needs
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import last_decisions
from kcover_portal.sources.models import Source

MAX_LISTED = 100  # items of one kind in ``GET /needs-person``
WORST_FIRST = tuple(reversed(catalog.SEVERITIES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One row that needs attention. ``about``: the type of its row, and the row's id, or name if it has one."""

    kind: Need
    row: Any
    cluster: Cluster
    place: Node | None = None
    node: str = ""
    about: tuple[str, str]
    name: str
    severity: str = ""
    since: datetime | None
    until: datetime | None = None
    why: tuple[reasons.Reason, ...] = ()
    message: str = ""

    @property
    def reason(self) -> str:
        """The English sentences of the reasons; the message if there are none."""
        return " ".join(map(str, self.why)) or self.message


class OpenRepairs:
    """The open repairs of nodes, read at the first question: most readers of needs ask for none."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._nodes = frozenset(nodes)

    def of(self, node: Node | None) -> int | None:
        """The id of the newest open repair of the node; None without one."""
        return self._newest.get(node.pk) if node is not None else None

    @cached_property
    def _newest(self) -> dict[int | None, int]:
        rows = repairs.open_repairs().filter(node__in=self._nodes).order_by("pk")
        return dict(rows.values_list("node_id", "pk"))


Part = tuple[int, list[Item]]  # the number of all, and the listed ones


@dataclass(frozen=True, slots=True)
class _Shape:
    """How rows of a kind become items: in which order, with which relations."""

    items: Callable[[list[Any], datetime], Iterable[Item]]
    order: tuple[str, ...] = ()
    related: tuple[str, ...] = ()


def parts(
    scope: Scope,
    clusters: Collection[Cluster],
    *,
    kinds: Iterable[Need] = Need,
    limit: int | None = MAX_LISTED,
    now: datetime,
) -> Mapping[Need, Part]:
    """What needs attention, by kind in the order of ``Need``: at most ``limit`` items, and the number of all.

    ``clusters``: those that are at least partly in the scope. The oldest are listed; of faults the worst, and among
    those the oldest.
    """
    whole = [cluster for cluster in clusters if cluster in scope]
    found = needs_person.rows(scope, whole, kinds=kinds, now=now)
    return {kind: _part(rows, _SHAPES[kind], clusters, limit=limit, now=now) for kind, rows in found.items()}


def _part(
    rows: needs_person.Rows, shape: _Shape, clusters: Collection[Cluster], *, limit: int | None, now: datetime
) -> Part:
    if isinstance(rows, list):
        return len(rows), list(shape.items(rows[:limit], now))
    here = rows.filter(cluster__in=clusters).select_related("cluster", *shape.related)
    if "rank" in shape.order:
        here = _ranked(here)
    listed = list(here.order_by(*shape.order, "pk")[:limit])
    return here.count() if len(listed) == limit else len(listed), list(shape.items(listed, now))


def _ranked(rows: QuerySet[Incident]) -> QuerySet[Incident]:
    """Annotates ``rank``: the place of the severity, the worst first."""
    unknown = Value(WORST_FIRST.index("warning"))
    places = (When(severity=name, then=Value(place)) for place, name in enumerate(WORST_FIRST))
    return rows.annotate(rank=Case(*places, default=unknown, output_field=IntegerField()))


def _incident(row: Incident, kind: Need, why: Iterable[reasons.Reason | None]) -> Item:
    return Item(
        kind=kind,
        row=row,
        cluster=row.cluster,
        place=row.node,
        node=row.node.name if row.node else "",
        about=("incident", str(row.pk)),
        name=f"{row.kind} {row.code}",
        severity=row.severity,
        since=row.opened_at,
        why=tuple(reason for reason in why if reason is not None),
    )


def _of_cluster(kind: Need) -> Callable[[list[Incident], datetime], list[Item]]:
    """The items of incidents without a node."""
    return lambda rows, _now: [_incident(row, kind, (row.message_reason,)) for row in rows]


def _each(item: Callable[[Any], Item]) -> Callable[[list[Any], datetime], Iterable[Item]]:
    return lambda rows, _now: map(item, rows)


def _unhandled(rows: list[Incident], _now: datetime) -> list[Item]:
    """Faults of nodes that no rescue handles, with the reasons of their last decisions."""
    latest = last_decisions.of(rows)
    return [_incident(row, Need.INCIDENT, latest[row.pk].reasons if row.pk in latest else ()) for row in rows]


def _left(row: Rescue) -> Item:
    return _rescue(row, Need.RESCUE, since=row.closed_at or row.opened_at)


def _asked(row: Rescue) -> Item:
    return _rescue(row, Need.APPROVAL, since=row.opened_at, until=row.expires_at)


def _rescue(row: Rescue, kind: Need, *, since: datetime, until: datetime | None = None) -> Item:
    why = reasons.kept(row.because)
    return Item(
        kind=kind,
        row=row,
        cluster=row.cluster,
        place=row.node,
        node=row.node.name,
        about=("rescue", str(row.pk)),
        name=row.code,
        since=since,
        until=until,
        why=(why,) if why else (),
        message=row.outcome,
    )


def _order(row: JobOrder) -> Item:
    why = reasons.kept(row.because)
    return Item(
        kind=Need.JOB,
        row=row,
        cluster=row.cluster,
        about=("job_order", str(row.pk)),
        name=f"{row.kind} {row.namespace}/{row.name}",
        since=row.requested_at,
        why=(why,) if why else (),
    )


def _repair(row: Repair, now: datetime) -> Item:
    why = repair_needs.why(row, now=now)
    return Item(
        kind=Need.REPAIR,
        row=row,
        cluster=row.cluster,
        place=row.node,
        node=row.node_name,
        about=("repair", str(row.pk)),
        name=str(row.part),
        since=row.reported_at,
        until=row.due,
        why=(why,) if why else (),
    )


def _part_in_doubt(row: Placement) -> Item:
    return Item(
        kind=Need.PART,
        row=row,
        cluster=row.cluster,
        place=row.node,
        node=row.node_name,
        about=("part", str(row.part_id)),
        name=str(row.part),
        since=row.flagged_at,
        why=row.reasons,
    )


def _unwatched(row: Cluster) -> Item:
    return Item(
        kind=Need.WATCH,
        row=row,
        cluster=row,
        about=("cluster", row.name),
        name=row.name,
        since=row.watched_at,
        why=tuple(filter(None, (row.watch_failure,))),
    )


def _failing(row: Source) -> Item:
    why = reasons.kept(row.error)
    return Item(
        kind=Need.SOURCE,
        row=row,
        cluster=row.cluster,
        about=("source", row.name),
        name=row.name,
        since=row.error_at,
        why=(why,) if why else (),
    )


_SHAPES: Final[Mapping[Need, _Shape]] = {
    Need.LEDGER: _Shape(_of_cluster(Need.LEDGER), ("opened_at",)),
    Need.STORM: _Shape(_of_cluster(Need.STORM), ("opened_at",)),
    Need.RESCUE: _Shape(_each(_left), ("opened_at",), ("node", "decision")),
    Need.APPROVAL: _Shape(_each(_asked), ("expires_at",), ("node", "decision")),
    Need.INCIDENT: _Shape(_unhandled, ("rank", "opened_at"), ("node",)),
    Need.JOB: _Shape(_each(_order), ("requested_at",)),
    Need.REPAIR: _Shape(lambda rows, now: [_repair(row, now) for row in rows], ("reported_at",), ("node",)),
    Need.PART: _Shape(_each(_part_in_doubt), ("flagged_at",), ("part", "node")),
    Need.WATCH: _Shape(_each(_unwatched)),
    Need.SOURCE: _Shape(_each(_failing), ("error_at",)),
}
