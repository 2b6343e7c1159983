"""The home page's list of what needs a person: worst first, and complete up to a bound that the list names."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Case, Count, IntegerField, Min, QuerySet, Value, When
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from kcover.faults import catalog
from kcover_portal import localization, needs_person
from kcover_portal.accounts.queries import Scope
from kcover_portal.console import presentation
from kcover_portal.console.badge import Badge
from kcover_portal.console.fault_names import incident_name, of_rescue, symptom
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs.models import JobOrder
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.rescue.queries import last_decisions
from kcover_portal.sources.models import Source

MAX_ROWS = 60  # rows of one kind; the list links to the rest
WORST_FIRST = tuple(reversed(catalog.SEVERITIES))
URGENT_SEVERITIES = 2  # the number of severities that come before approvals: fatal and degraded


@dataclass(frozen=True, slots=True)
class Need:
    """One line of the list of what needs a person: what, why, since when, and where to act."""

    look: Badge
    title: str
    text: str
    since: datetime | None
    page: str
    record: int | None = None
    cluster: str = ""
    node: str = ""
    until: datetime | None = None  # when it expires


@dataclass(frozen=True, slots=True)
class Remainder:
    """Rows of one kind beyond the listed ones, and the list that has them all."""

    number: int
    page: str
    query: str


class _Kind(NamedTuple):
    """The listed rows of one kind, and the list of all ``total`` of them."""

    rows: list[Need]
    total: int
    page: str
    query: str


@dataclass(frozen=True, slots=True)
class Needs:
    """The list: its rows, how many there are in all, and where those are that it leaves out."""

    rows: list[Need]
    total: int
    more: list[Remainder]


def of(scope: Scope, clusters: Collection[Cluster], *, now: datetime) -> Needs:
    """Everything that needs a person, most urgent first; ``clusters``: those that are wholly in the scope.

    A node with several faults is one row. So a node that reports many faults hides no other node.
    """
    waiting = needs_person.of(scope, clusters, now=now)
    urgent, other, nodes = _faulty_nodes(waiting.incidents)
    unwatched = [_unwatched(cluster) for cluster in waiting.clusters]
    kinds = (
        _Kind(*_ledgers(waiting.ledgers), "incidents", "needs_person=true&kind=ledger"),
        _Kind(*_storms(waiting.storms), "incidents", "needs_person=true&kind=storm"),
        _Kind(urgent, nodes - len(other), "incidents", "needs_person=true"),
        _Kind(*_left(waiting.rescues), "rescues", "tab=people"),
        _Kind(*_approvals(waiting.approvals), "rescues", "tab=approval"),
        _Kind(*_orders(waiting.orders), "jobs", ""),
        _Kind(*_repairs(waiting.repairs, now=now), "repairs", "needs_person=true"),
        _Kind(other, len(other), "incidents", "needs_person=true"),
        _Kind(unwatched, len(unwatched), "nodes", ""),
        _Kind(*_failing(waiting.sources), "sources", ""),
    )
    return Needs(
        rows=[row for kind in kinds for row in kind.rows],
        total=sum(kind.total for kind in kinds),
        more=[
            Remainder(kind.total - len(kind.rows), kind.page, kind.query)
            for kind in kinds
            if kind.total > len(kind.rows)
        ],
    )


def _total(rows: QuerySet[Any], listed: Sequence[object]) -> int:
    return rows.count() if len(listed) == MAX_ROWS else len(listed)


def _ledgers(rows: QuerySet[Incident]) -> tuple[list[Need], int]:
    found = [
        Need(
            Badge("", "bad", "bolt"),
            _("The audit log differs from its anchor; automation is paused"),
            _("The database was restored or rewritten. Read the incident, check the nodes, resume, then close it."),
            row.opened_at,
            "incident",
            row.pk,
            row.cluster.name,
        )
        for row in rows.select_related("cluster").order_by("opened_at", "pk")[:MAX_ROWS]
    ]
    return found, _total(rows, found)


def _storms(rows: QuerySet[Incident]) -> tuple[list[Need], int]:
    found = [
        Need(
            presentation.of("guard", "storm"),
            _("Storm: %(symptom)s on %(n)d nodes") % {"symptom": symptom(storm), "n": len(storm.scope)},
            _("Nothing is drained or rebooted. Find what its nodes share, then close the storm."),
            storm.opened_at,
            "incident",
            storm.pk,
            storm.cluster.name,
        )
        for storm in rows.select_related("cluster").order_by("opened_at", "pk")[:MAX_ROWS]
    ]
    return found, _total(rows, found)


def _left(rows: QuerySet[Rescue]) -> tuple[list[Need], int]:
    found = [
        Need(
            presentation.of("node", "attention"),
            _("%(node)s needs a person") % {"node": rescue.node.name},
            localization.stored(rescue.because) or rescue.outcome,
            rescue.closed_at or rescue.opened_at,
            "rescue",
            rescue.pk,
            rescue.cluster.name,
            rescue.node.name,
        )
        for rescue in rows.select_related("node", "cluster", "decision").order_by("opened_at", "pk")[:MAX_ROWS]
    ]
    return found, _total(rows, found)


def _approvals(rows: QuerySet[Rescue]) -> tuple[list[Need], int]:
    found = [
        Need(
            presentation.of("node", "approval"),
            _("Approve the rescue of %(node)s?") % {"node": rescue.node.name},
            " · ".join(part for part in (of_rescue(rescue), rescue.rule) if part),
            rescue.opened_at,
            "rescue",
            rescue.pk,
            rescue.cluster.name,
            rescue.node.name,
            until=rescue.expires_at,
        )
        for rescue in rows.select_related("node", "cluster", "decision").order_by("expires_at", "pk")[:MAX_ROWS]
    ]
    return found, _total(rows, found)


def _orders(rows: QuerySet[JobOrder]) -> tuple[list[Need], int]:
    found = [
        Need(
            presentation.of("node", "attention"),
            _("Training job %(job)s needs a person") % {"job": f"{order.namespace}/{order.name}"},
            localization.stored(order.because),
            order.requested_at,
            "jobs",
            order.pk,
            order.cluster.name,
        )
        for order in rows.select_related("cluster").order_by("requested_at", "pk")[:MAX_ROWS]
    ]
    return found, _total(rows, found)


def _repairs(rows: QuerySet[Repair], *, now: datetime) -> tuple[list[Need], int]:
    found = [
        Need(
            Badge("", "ask", "tool"),
            _("Repair of %(node)s needs a person") % {"node": repair.node_name},
            localization.sentence(filter(None, [repair.need(now=now)])),
            repair.reported_at,
            "repair",
            repair.pk,
            repair.cluster.name,
            repair.node_name,
        )
        for repair in rows.select_related("cluster", "node").order_by("reported_at", "pk")[:MAX_ROWS]
    ]
    return found, _total(rows, found)


def _faulty_nodes(rows: QuerySet[Incident]) -> tuple[list[Need], list[Need], int]:
    """(Nodes with an urgent fault, the other nodes, the number of nodes): nodes with faults that nothing handles."""
    rank = Case(
        *(When(severity=name, then=Value(place)) for place, name in enumerate(WORST_FIRST)),
        default=Value(WORST_FIRST.index("warning")),
        output_field=IntegerField(),
    )
    ranked = rows.annotate(rank=rank)
    by_node: QuerySet[Any] = (
        ranked.order_by().values("node").annotate(worst=Min("rank"), since=Min("opened_at"), faults=Count("pk"))
    )
    nodes = list(by_node.order_by("worst", "since", "node")[:MAX_ROWS])
    worst: dict[int, Incident] = {}
    shown: QuerySet[Any] = ranked.filter(node__in=[node["node"] for node in nodes]).select_related("node", "cluster")
    for incident in shown.order_by("-rank", "-opened_at", "-pk"):
        worst[incident.node_id or 0] = incident  # the last one is the worst, and among those the oldest
    newest = last_decisions.of(worst.values())
    urgent: list[Need] = []
    other: list[Need] = []
    for node in nodes:
        incident = worst[node["node"]]
        need = _unhandled(incident, newest.get(incident.pk), faults=node["faults"])
        (urgent if node["worst"] < URGENT_SEVERITIES else other).append(need)
    total = by_node.count() if len(nodes) == MAX_ROWS else len(nodes)
    return urgent, other, total


def _unhandled(incident: Incident, decision: Decision | None, *, faults: int) -> Need:
    """The worst fault of a node that nothing handles, with the reason of the last decision."""
    fault = incident_name(incident)
    why = localization.sentence(decision.reasons) if decision else _("no decision yet")
    if faults > 1:
        others = ngettext("%(n)d other open fault", "%(n)d other open faults", faults - 1) % {"n": faults - 1}
        why = f"{why} · {others}"
    return Need(
        presentation.of("node", "faulty"),
        _("%(fault)s on %(node)s: no action taken") % {"fault": fault, "node": incident.where},
        why,
        incident.opened_at,
        "incident",
        incident.pk,
        incident.cluster.name,
        incident.node.name if incident.node else "",
    )


def _unwatched(cluster: Cluster) -> Need:
    return Need(
        Badge("", "ask", "wifi-off"),
        _("The watch on cluster %(cluster)s is disconnected") % {"cluster": cluster.name},
        localization.stored(cluster.watch_error),
        cluster.watched_at,
        "nodes",
        cluster=cluster.name,
    )


def _failing(rows: QuerySet[Source]) -> tuple[list[Need], int]:
    found = [
        Need(
            Badge("", "ask", "plug-connected-x"),
            _("Source %(name)s fails") % {"name": row.name},
            localization.stored(row.error),
            row.error_at,
            "sources",
            cluster=row.cluster.name,
        )
        for row in rows[:MAX_ROWS]
    ]
    return found, _total(rows, found)
