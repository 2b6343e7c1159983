"""The rows that need a person, read as items of one shape."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db.models import Case, IntegerField, QuerySet, Value, When

from kcover import reasons
from kcover.faults import catalog
from kcover.needs import Need
from kcover_portal import needs_person
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs.models import JobOrder
from kcover_portal.parts.models import Placement
from kcover_portal.repairs import queries as repairs
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import last_decisions
from kcover_portal.sources.models import Source

MAX_LISTED = 100  # items of one kind in ``GET /needs-person``
WORST_FIRST = tuple(reversed(catalog.SEVERITIES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One row that waits for a person. ``about``: the type of its row, and the row's id, or name if it has one."""

    kind: str
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


def parts(
    waiting: needs_person.NeedsPerson, clusters: list[Cluster], *, now: datetime, limit: int = MAX_LISTED
) -> Mapping[Need, Part]:
    """The items in these clusters by kind, in the order of ``Need``: at most ``limit`` of a kind, and how many in all.

    The oldest are listed; of faults the worst, and among those the oldest.
    """

    def part(rows: QuerySet[Any], order: tuple[str, ...], items: Callable[[list[Any]], Iterable[Item]]) -> Part:
        here = rows.filter(cluster__in=clusters).select_related("cluster")
        listed = list(here.order_by(*order, "pk")[:limit])
        return here.count() if len(listed) == limit else len(listed), list(items(listed))

    def of_cluster(kind: str) -> Callable[[list[Incident]], Iterable[Item]]:
        return lambda rows: [_incident(row, kind, (row.message_reason,)) for row in rows]

    found = waiting
    on_node, asked = ("node",), ("node", "decision")
    return {
        Need.LEDGER: part(found.ledgers, ("opened_at",), of_cluster("ledger")),
        Need.STORM: part(found.storms, ("opened_at",), of_cluster("storm")),
        Need.RESCUE: part(found.rescues.select_related(*asked), ("opened_at",), lambda rows: map(_left, rows)),
        Need.APPROVAL: part(found.approvals.select_related(*asked), ("expires_at",), lambda rows: map(_asked, rows)),
        Need.INCIDENT: part(_ranked(found.incidents).select_related(*on_node), ("rank", "opened_at"), _unhandled),
        Need.JOB: part(found.orders, ("requested_at",), lambda rows: map(_order, rows)),
        Need.REPAIR: part(
            found.repairs.select_related(*on_node), ("reported_at",), lambda rows: [_repair(row, now) for row in rows]
        ),
        Need.PART: part(
            found.parts.select_related("part", "node"), ("flagged_at",), lambda rows: map(_part_in_doubt, rows)
        ),
        Need.WATCH: (len(found.clusters), [_unwatched(cluster) for cluster in found.clusters[:limit]]),
        Need.SOURCE: part(found.sources, ("error_at",), lambda rows: map(_failing, rows)),
    }


def _ranked(rows: QuerySet[Incident]) -> QuerySet[Incident]:
    """Annotates ``rank``: the place of the severity, the worst first."""
    unknown = Value(WORST_FIRST.index("warning"))
    places = (When(severity=name, then=Value(place)) for place, name in enumerate(WORST_FIRST))
    return rows.annotate(rank=Case(*places, default=unknown, output_field=IntegerField()))


def _incident(row: Incident, kind: str, why: Iterable[reasons.Reason | None]) -> Item:
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


def _unhandled(rows: list[Incident]) -> list[Item]:
    """Faults of nodes that no rescue handles, with the reasons of their last decisions."""
    latest = last_decisions.of(rows)
    return [_incident(row, "incident", latest[row.pk].reasons if row.pk in latest else ()) for row in rows]


def _left(row: Rescue) -> Item:
    return _rescue(row, "rescue", since=row.closed_at or row.opened_at)


def _asked(row: Rescue) -> Item:
    return _rescue(row, "approval", since=row.opened_at, until=row.expires_at)


def _rescue(row: Rescue, kind: str, *, since: datetime, until: datetime | None = None) -> Item:
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
        kind="job",
        row=row,
        cluster=row.cluster,
        about=("job_order", str(row.pk)),
        name=f"{row.kind} {row.namespace}/{row.name}",
        since=row.requested_at,
        why=(why,) if why else (),
    )


def _repair(row: Repair, now: datetime) -> Item:
    why = row.need(now=now)
    return Item(
        kind="repair",
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
        kind="part",
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
        kind="watch",
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
        kind="source",
        row=row,
        cluster=row.cluster,
        about=("source", row.name),
        name=row.name,
        since=row.error_at,
        why=(why,) if why else (),
    )
