"""Reads the records of a report from rows. The number of statements does not depend on the number of rows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import F, Q, QuerySet

from kcover.reports.records import Fault, Isolation, Place, Records, Repair, Span, Work
from kcover_portal.accounts.queries import Scope
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import STORM, Incident, Occurrence
from kcover_portal.jobs.models import JobOrder
from kcover_portal.repairs.models import Repair as RepairRow
from kcover_portal.reports import rescues
from kcover_portal.rescue.models import Rescue

STOPS: Final = "fatal"  # the severity of faults that stop their device
OVERFLOW: Final = "overflow"  # it counts faults beyond the bounds, which are unknown


@dataclass(frozen=True, slots=True)
class Part:
    """The part of the fleet that a report is about. ``cluster`` None: all that the person sees."""

    scope: Scope
    cluster: Cluster | None = None

    def rows(self, rows: QuerySet[Any], cluster: str = "cluster", node: str | None = "node") -> QuerySet[Any]:
        """The rows in this part. See ``Scope.where`` for the paths."""
        seen = rows.filter(self.scope.where(cluster, node))
        return seen if self.cluster is None else seen.filter(**{cluster: self.cluster})


def read(part: Part, *, since: datetime, until: datetime, works: bool = True) -> Records:
    """Everything that happened between two times. ``works`` False: only nodes and faults."""
    places = _places(part, since=since, until=until)
    faults = _fault_rows(part, since=since, until=until)
    found = _Works({}, [], {})
    if works:
        rows = rescues.overlapping(part.rows(Rescue.objects.all()), since=since, until=until)
        gone = {place.node: place.listed.until for place in places}
        read_works, isolations = rescues.read(part.rows, rows, gone=gone, since=since, until=until)
        found = _Works(read_works, isolations, _handled(rows, read_works))
    storms = _storms(part, since=since, until=until)
    happened = _happened(part, since=since, until=until) if works else {}
    names = {place.node: (place.cluster, place.name) for place in places}
    return Records(
        places=places,
        faults=[
            Fault(
                node=node,
                kind=kind,
                code=code,
                device=device,
                open=Span(opened, closed),
                stops=severity == STOPS,
                policy=handled.policy if (handled := found.handled.get(pk)) else "",
                rule=handled.rule if handled else "",
                happened_at=happened.get(pk),
                in_storm=_in_storm(storms.get(names.get(node, ("", "")), ()), kind, code, opened),
            )
            for pk, node, kind, code, device, severity, opened, closed in faults
        ],
        works=list(found.works.values()),
        isolations=found.isolations,
        repairs=_repairs(part, since=since, until=until) if works else (),
        restarts=_restarts(part, since=since, until=until) if works else (),
    )


@dataclass(frozen=True, slots=True)
class _Works:
    """Rescues by id, isolations, and the rescue that handled each incident."""

    works: Mapping[int, Work]
    isolations: list[Isolation]
    handled: Mapping[int, Work]


def _places(part: Part, *, since: datetime, until: datetime) -> list[Place]:
    rows = part.rows(Node.objects.all(), "cluster", "").filter(gpus__gt=0, created_at__lt=until)
    rows = rows.filter(Q(gone_at=None, in_cluster=True) | Q(gone_at__gt=since))
    columns = ("pk", "name", "cluster__name", "pool", "gpus", "created_at", "gone_at", "cluster__gpu_hour_price")
    return [
        Place(node=pk, name=name, cluster=cluster, pool=pool, gpus=gpus, listed=Span(created, gone), price=price)
        for pk, name, cluster, pool, gpus, created, gone, price in rows.order_by("pk").values_list(*columns)
    ]


def _fault_rows(part: Part, *, since: datetime, until: datetime) -> Iterable[tuple[Any, ...]]:
    """Faults of nodes that were open in the period: no faults of programs, no drills, nothing that is only noted."""
    rows = part.rows(_counted(Incident.objects.all())).filter(Q(closed_at=None) | Q(closed_at__gt=since))
    columns = ("pk", "node_id", "kind", "code", "device", "severity", "opened_at", "closed_at")
    return rows.filter(opened_at__lt=until).order_by("opened_at", "pk").values_list(*columns)


def _counted(rows: QuerySet[Incident], path: str = "") -> QuerySet[Any]:
    """The rows about faults that reports count. ``path``: from a row to its incident."""
    counted = rows.filter(**{f"{path}node__gpus__gt": 0, f"{path}is_user_fault": False, f"{path}drill": False})
    return counted.exclude(**{f"{path}severity": "info"}).exclude(**{f"{path}kind": OVERFLOW})


def _happened(part: Part, *, since: datetime, until: datetime) -> dict[int, datetime]:
    """When the first occurrence of each fault was seen on the node, by its clock, as long as occurrences are kept."""
    rows = part.rows(Occurrence.objects.all(), "node__cluster").filter(
        incident__opened_at__gte=since,
        incident__opened_at__lt=until,
        at=F("incident__opened_at"),
        seen_at__isnull=False,
    )
    return dict(rows.order_by("-pk").values_list("incident_id", "seen_at"))


def _handled(rows: QuerySet[Rescue], works: Mapping[int, Work]) -> dict[int, Work]:
    """The last rescue of each incident."""
    pairs = Rescue.incidents.through.objects.filter(rescue__in=rows.order_by().values("pk"))
    found = sorted(pairs.values_list("rescue_id", "incident_id"))
    return {incident: works[rescue] for rescue, incident in found if rescue in works}


Storm = tuple[str, str, str, datetime, datetime | None]  # trait, kind, code, its time


def _storms(part: Part, *, since: datetime, until: datetime) -> dict[tuple[str, str], list[Storm]]:
    """The storms by the cluster and name of each node that they covered."""
    rows = Incident.objects.filter(kind=STORM, opened_at__lt=until).filter(Q(closed_at=None) | Q(closed_at__gt=since))
    rows = rows.filter(cluster__in=part.scope.clusters())
    found: dict[tuple[str, str], list[Storm]] = {}
    columns = ("cluster__name", "scope", "trait", "symptom_kind", "symptom", "opened_at", "closed_at")
    for cluster, nodes, *storm in rows.values_list(*columns):
        for name in nodes:
            found.setdefault((cluster, name), []).append(tuple(storm))
    return found


def _in_storm(storms: Iterable[Storm], kind: str, code: str, opened: datetime) -> bool:
    """Whether a fault belongs to one of the storms. A storm is opened up to its window after its first faults."""
    return any(
        (trait != "code" or (kind, code) == (symptom_kind, symptom))
        and since - rescues.STORM_WINDOW <= opened
        and (until is None or opened <= until)
        for trait, symptom_kind, symptom, since, until in storms
    )


def _repairs(part: Part, *, since: datetime, until: datetime) -> list[Repair]:
    """Repairs of nodes that still have a row. A refused one ended with the refusal."""
    rows = part.rows(RepairRow.objects.filter(node__isnull=False, reported_at__lt=until))
    rows = rows.filter(Q(closed_at=None) | Q(closed_at__gt=since))
    columns = ("node_id", "reported_at", "closed_at", "state", "refused_at")
    return [
        Repair(node, Span(reported, refused if state == RepairRow.State.REFUSED else closed))
        for node, reported, closed, state, refused in rows.order_by("pk").values_list(*columns)
    ]


def _restarts(part: Part, *, since: datetime, until: datetime) -> list[tuple[datetime, Any]]:
    """When restarts of training jobs were ordered, and how long they took. Jobs belong to whole clusters."""
    rows = part.rows(JobOrder.objects.all(), "cluster", None).filter(
        action=JobOrder.Action.RESTART, state=JobOrder.State.DONE, requested_at__gte=since, requested_at__lt=until
    )
    return [(at, ended - at) for at, ended in rows.order_by().values_list("requested_at", "ended_at") if ended]
