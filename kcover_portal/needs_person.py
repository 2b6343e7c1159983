"""What needs a person, across all apps: for the console, REST, metrics and notifications."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, QuerySet

from kcover.needs import Need
from kcover_portal.accounts.queries import Scope
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs import queries as jobs
from kcover_portal.jobs.models import JobOrder
from kcover_portal.parts import queries as parts
from kcover_portal.parts.models import Placement
from kcover_portal.repairs import queries as repairs
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import needs_person as rescue
from kcover_portal.sources import queries as sources
from kcover_portal.sources.models import Source


@dataclass(frozen=True, slots=True)
class NeedsPerson:
    """The rows that wait for a person, by what they wait for; each app defines its own part."""

    ledgers: QuerySet[Incident]  # the audit log differs from an anchor; to be examined and closed
    storms: QuerySet[Incident]  # to be examined and closed
    rescues: QuerySet[Rescue]  # left to people
    approvals: QuerySet[Rescue]  # to be approved or rejected
    incidents: QuerySet[Incident]  # that no rescue handles
    orders: QuerySet[JobOrder]  # about training jobs, left to people
    repairs: QuerySet[Repair]  # overdue, or without an owner or a date
    parts: QuerySet[Placement]  # of parts that should be looked at
    clusters: list[Cluster]  # that the watch cannot read
    sources: QuerySet[Source]  # of faults, that fail


def of(scope: Scope, clusters: Collection[Cluster], *, now: datetime) -> NeedsPerson:
    """The items that need a person in the scope, of which these clusters are wholly part. Evaluates nothing."""
    return NeedsPerson(
        ledgers=scope.rows(rescue.open_ledger_incidents(), node=None),
        storms=scope.rows(rescue.open_storms(), node=None),
        rescues=scope.rows(rescue.left_to_people()),
        approvals=scope.rows(rescue.awaiting_approval()),
        incidents=scope.rows(rescue.unhandled_incidents()),
        orders=scope.rows(jobs.left_to_people(), node=None),
        repairs=scope.rows(repairs.left_to_people(now=now)),
        parts=scope.rows(parts.left_to_people()),
        clusters=fleet.unwatched(clusters),
        sources=sources.failing(clusters),
    )


def counts(clusters: Collection[Cluster], *, now: datetime) -> dict[tuple[str, Need], int]:
    """The number of rows that need a person, by cluster and kind; zeros included. Nine queries."""
    found = of(Scope.of(*clusters), clusters, now=now)
    rows: dict[Need, QuerySet[Any]] = {
        Need.LEDGER: found.ledgers,
        Need.STORM: found.storms,
        Need.RESCUE: found.rescues,
        Need.APPROVAL: found.approvals,
        Need.INCIDENT: found.incidents,
        Need.JOB: found.orders,
        Need.REPAIR: found.repairs,
        Need.PART: found.parts,
        Need.SOURCE: found.sources,
    }
    numbers = Counter({(cluster.name, Need.WATCH): 1 for cluster in found.clusters})
    for kind, queryset in rows.items():
        for name, n in queryset.order_by().values_list("cluster__name").annotate(n=Count("pk")):
            numbers[name, kind] = n
    return {(cluster.name, kind): numbers[cluster.name, kind] for cluster in clusters for kind in Need}
