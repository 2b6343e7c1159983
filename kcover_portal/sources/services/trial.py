"""Tests of sources: the observations of the last hour."""

from dataclasses import dataclass
from datetime import datetime

from kcover import reasons
from kcover_portal.fleet import queries as fleet
from kcover_portal.kube import port
from kcover_portal.sources import queries
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import pull_schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result: the number of events, and the seconds from the newest event's own time to its arrival.

    Sources that the portal reads are asked now; of the others, what arrived is counted.
    """

    ok: bool
    seen: int
    lag_seconds: float | None
    error: reasons.Reason | None = None


def try_source(source: Source, *, now: datetime) -> Trial:
    """Asks a source what it saw within the last hour. Nothing is stored."""
    source.refresh_from_db()
    if source.is_pulled:
        seen, error = pull_schedule.seen_lately(source, since=queries.TEST_WINDOW, now=now)
        return Trial(ok=error is None, seen=seen, lag_seconds=source.lag, error=error)
    seen = queries.taken_lately(source, now=now)
    error = reasons.of("source_off", source=source.name) if not source.enabled else None
    if error is None and source.is_builtin:
        error = _unreachable(source)
    elif error is None and not seen:
        error = reasons.of("source_nothing_seen")
    return Trial(ok=error is None, seen=seen, lag_seconds=source.lag, error=error)


def _unreachable(source: Source) -> reasons.Reason | None:
    """The reason why the cluster's API server cannot be queried; None if it can."""
    try:
        fleet.connect(source.cluster).version()
    except port.KubeError as error:
        return reasons.of("source_cluster_silent", cluster=source.cluster.name, problem=str(error)[:300])
    return None
