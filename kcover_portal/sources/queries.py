"""Reads of sources."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from django.db.models import F, Q, QuerySet

from kcover import reasons
from kcover.sources import pod_log, prometheus, settings
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.prepared import Prepared
from kcover_portal.sources.models import Source, TakenEvent

TEST_WINDOW = timedelta(hours=1)
FAILING_AFTER = 3  # failed reads in a row
LATE_AFTER = timedelta(minutes=5)  # how far behind a source that is read may be
PARTLY_READ = ("source_nodes_silent", "source_logs_unread")  # errors of sources of which other parts were read


_NAMED = Prepared(lambda name: Source.objects.select_related("cluster").filter(name=name), name=str)


def named(name: str) -> Source | None:
    """The source of this name; None if there is none."""
    return _NAMED.first(name=name)


def prometheus_names() -> frozenset[str]:
    """The names that a rule's ``checkpointSource`` may use, of all clusters."""
    return frozenset(Source.objects.filter(kind=Source.Kind.PROMETHEUS).values_list("name", flat=True))


def log_namespaces(cluster: Cluster) -> list[str]:
    """The namespaces of this cluster whose pods' logs are read."""
    rows = Source.objects.filter(cluster=cluster, kind=Source.Kind.POD_LOGS, enabled=True)
    return [name for row in rows for name in row.settings.get("pod_namespaces", pod_log.DEFAULT_NAMESPACES)]


def watched(cluster: Cluster, kind: str) -> Source | None:
    """The source of this kind that exists for each cluster, if it is switched on."""
    return Source.objects.filter(cluster=cluster, kind=kind, enabled=True).order_by("pk").first()


def taken_lately(source: Source, *, now: datetime) -> int:
    """The number of events that the source sent within TEST_WINDOW, without repetitions."""
    return TakenEvent.objects.filter(source=source, at__gt=now - TEST_WINDOW).count()


def due(*, now: datetime) -> QuerySet[Source]:
    """The sources that a worker may read now."""
    return Source.objects.filter(Q(due_at=None) | Q(due_at__lte=now), kind__in=settings.PULLED, enabled=True)


def all_sources() -> QuerySet[Source]:
    """Every source, by cluster and name."""
    return Source.objects.select_related("cluster").order_by("cluster__name", "name")


def failing(clusters: Collection[Cluster]) -> QuerySet[Source]:
    """Sources that cannot be read, or whose last request could not be read. A person must repair them."""
    since = Q(last_contact_at=None) | Q(error_at__gt=F("last_contact_at"))
    pulled = Q(kind__in=settings.PULLED)
    broken = (pulled & Q(attempts__gte=FAILING_AFTER)) | (~pulled & ~Q(error={}) & since)
    return all_sources().filter(broken, enabled=True, cluster__in=clusters)


def troubles(sources: Iterable[Source], *, now: datetime) -> dict[int, reasons.Reason]:
    """The problems of enabled sources by source id; sources without a problem are left out."""
    rows = list(sources)
    broken = set(failing({row.cluster for row in rows}).values_list("pk", flat=True))
    found = ((row.pk, _trouble(row, is_failing=row.pk in broken, now=now)) for row in rows if row.enabled)
    return {pk: why for pk, why in found if why is not None}


def warning(source: Source) -> reasons.Reason | None:
    """What lets others than the source's operators report faults through it; None if nothing is known."""
    if source.kind != Source.Kind.PROMETHEUS or not source.enabled:
        return None
    query = source.settings.get("query")  # of the default one, the jobs are known
    is_sound = query is None or prometheus.has_selector(query)
    return None if is_sound else reasons.of("source_selects_all", setting="query")


def _trouble(source: Source, *, is_failing: bool, now: datetime) -> reasons.Reason | None:
    if is_failing:
        return reasons.both(reasons.of("source_failing", source=source.name), source.why)
    if not source.is_pulled:
        return None
    behind = now - read_until(source)
    if behind > LATE_AFTER + timedelta(seconds=source.settings.get("interval", 0)):
        return reasons.of("source_late", source=source.name, behind=reasons.span(behind))
    return source.why if reasons.stored_saying(source.error, *PARTLY_READ) else None


def read_until(source: Source) -> datetime:
    """Up to when a source that the portal asks has been read."""
    last_contact_at = source.last_contact_at or source.created_at
    positions = [position["until"] for position in source.cursor.values() if _is_position(position)]
    return min(last_contact_at, datetime.fromtimestamp(min(positions) / 1e9, tz=UTC)) if positions else last_contact_at


def _is_position(position: object) -> bool:
    return isinstance(position, dict) and isinstance(position.get("until"), int)
