"""Whether the portal is well: each check one fact, its age and its limit, for /readyz, /metrics and the system page."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.db.utils import Error as DatabaseError

from kcover_portal.fleet import queries as fleet

SWEEP_LATE = timedelta(seconds=30)
WATCH_LATE = timedelta(seconds=120)


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: its name, whether it is well, and the fact behind it."""

    name: str
    well: bool
    fact: str


def findings(*, now: datetime) -> list[Finding]:
    """Database, sweep pulse, and one watch a cluster. The broker is only a doorbell: its loss shows as sweep age."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return [Finding("database", False, str(error).strip())]
    return [Finding("database", True, connection.vendor), _sweep(now), *_watches(now)]


def _sweep(now: datetime) -> Finding:
    at = fleet.pulse("sweep")
    if at is None:
        return Finding("sweep", False, "never ran: is a worker and beat running?")
    age = now - at
    return Finding("sweep", age <= SWEEP_LATE, f"ran {age.total_seconds():.0f} s ago")


def _watches(now: datetime) -> list[Finding]:
    found = []
    for cluster in fleet.clusters():
        name = f"watch {cluster.name}"
        if cluster.watched_at is None:
            found.append(Finding(name, False, cluster.watch_error or "never had word from the cluster"))
            continue
        age = now - cluster.watched_at
        fact = f"had word {age.total_seconds():.0f} s ago"
        if cluster.watch_error:
            fact += f"; last error: {cluster.watch_error}"
        found.append(Finding(name, age <= WATCH_LATE, fact))
    return found
