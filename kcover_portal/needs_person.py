"""What needs attention, across all apps: the one definition for the console, REST, metrics and messages."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from django.db.models import Count, QuerySet

from kcover.needs import Need
from kcover_portal.accounts.queries import Scope
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs import queries as jobs
from kcover_portal.parts import queries as parts
from kcover_portal.repairs import queries as repairs
from kcover_portal.rescue.queries import needs_person as rescue
from kcover_portal.sources import queries as sources

Rows = QuerySet[Any] | list[Cluster]
_Read = Callable[[Scope, Collection[Cluster], datetime], Rows]
# The rows of each kind; each app defines its own part. A kind without nodes belongs to the whole of a cluster.
_ROWS: Final[Mapping[Need, _Read]] = {
    Need.LEDGER: lambda scope, _clusters, _now: scope.rows(rescue.open_ledger_incidents(), node=None),
    Need.STORM: lambda scope, _clusters, _now: scope.rows(rescue.open_storms(), node=None),
    Need.RESCUE: lambda scope, _clusters, _now: scope.rows(rescue.left_to_people()),
    Need.APPROVAL: lambda scope, _clusters, _now: scope.rows(rescue.awaiting_approval()),
    Need.INCIDENT: lambda scope, _clusters, _now: scope.rows(rescue.unhandled_incidents()),
    Need.JOB: lambda scope, _clusters, _now: scope.rows(jobs.left_to_people(), node=None),
    Need.REPAIR: lambda scope, _clusters, now: scope.rows(repairs.left_to_people(now=now)),
    Need.PART: lambda scope, _clusters, _now: scope.rows(parts.left_to_people()),
    Need.WATCH: lambda _scope, clusters, _now: fleet.unwatched(clusters),
    Need.SOURCE: lambda _scope, clusters, _now: sources.failing(clusters),
}


def rows(
    scope: Scope, clusters: Collection[Cluster], *, kinds: Iterable[Need] = Need, now: datetime
) -> dict[Need, Rows]:
    """The rows that need attention in the scope, by kind in the order of ``Need``. Evaluates no query.

    ``clusters``: those that are wholly part of the scope.
    """
    wanted = frozenset(kinds)
    return {kind: read(scope, clusters, now) for kind, read in _ROWS.items() if kind in wanted}


def counts(clusters: Collection[Cluster], *, now: datetime) -> dict[tuple[str, Need], int]:
    """The number of rows that need attention, by cluster and kind; zeros included. Nine queries."""
    numbers: Counter[tuple[str, Need]] = Counter()
    for kind, found in rows(Scope.of(*clusters), clusters, now=now).items():
        if isinstance(found, list):
            numbers.update((cluster.name, kind) for cluster in found)
        else:
            of_cluster = found.order_by().values_list("cluster__name").annotate(n=Count("pk"))
            numbers.update({(name, kind): n for name, n in of_cluster})
    return {(cluster.name, kind): numbers[cluster.name, kind] for cluster in clusters for kind in Need}
