"""State of the portal: agents, database."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Count, Q

from kcover.checks import version_skew
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent, Cluster, Node

CLOCK_SKEW_SECONDS = 5.0  # an agent's clock may be off this much before it is listed
MAX_ROWS = 12


@dataclass(frozen=True, slots=True)
class Agents:
    """The number of agents by the age of their last report.

    ``never``: GPU nodes of the cluster without any report of an agent.
    """

    on_time: int
    late: int
    silent: int
    never: int
    versions: list[tuple[str, int]]
    usual: str
    skewed: list[Agent]


def agents(clusters: Collection[Cluster], *, now: datetime) -> Agents:
    """The agents of nodes that are in their clusters; four queries."""
    rows = Agent.objects.filter(node__cluster__in=clusters, node__gone_at=None)
    late, silent = now - fleet.AGENT_LATE_AFTER, now - fleet.AGENT_SILENT_AFTER
    counts = rows.aggregate(
        on_time=Count("pk", filter=Q(seen_at__gte=late)),
        late=Count("pk", filter=Q(seen_at__lt=late, seen_at__gte=silent)),
        silent=Count("pk", filter=Q(seen_at__lt=silent)),
    )
    versions = _versions(clusters)
    off = rows.filter(Q(skew__gt=CLOCK_SKEW_SECONDS) | Q(skew__lt=-CLOCK_SKEW_SECONDS)).select_related("node__cluster")
    return Agents(
        **counts,
        never=Node.objects.filter(cluster__in=clusters, gone_at=None, in_cluster=True, gpus__gt=0, agent=None).count(),
        versions=versions,
        usual=version_skew.most_common(dict(versions)),
        skewed=list(off.order_by("-skew")[:MAX_ROWS]),
    )


def usual_version(clusters: Collection[Cluster]) -> str:
    """The most common agent version in the clusters, "" without agents; one query."""
    return version_skew.most_common(dict(_versions(clusters)))


def _versions(clusters: Collection[Cluster]) -> list[tuple[str, int]]:
    """(version, number of agents), most common first."""
    rows = Agent.objects.filter(node__cluster__in=clusters, node__gone_at=None)
    return list(rows.values_list("version").annotate(n=Count("pk")).order_by("-n", "version"))


def database_bytes() -> int:
    """The size of the database on disk."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_database_size(current_database())")
        else:
            cursor.execute("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
        return int(cursor.fetchone()[0])


def fresh(moment: datetime | None, *, now: datetime, limit: timedelta) -> bool:
    """Returns whether a moment is set and no older than the limit."""
    return moment is not None and now - moment <= limit
