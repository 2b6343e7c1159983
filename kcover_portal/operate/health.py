"""Health checks of the portal for /readyz and /metrics."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import redis
from django.conf import settings
from django.db import connection
from django.db.utils import Error as DatabaseError
from redis.backoff import NoBackoff
from redis.retry import Retry

from kcover import reasons
from kcover_portal.anchors import queries as anchors
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.operate import watcher
from kcover_portal.runtime import queries as runtime
from kcover_portal.shared_reads import portal_checks

BROKER_SECONDS = 1.0
SWEEP_LATE = timedelta(seconds=30)
WATCH_LATE = timedelta(seconds=30)  # age of the watch's lease: twice its duration
HEADS_LATE = timedelta(minutes=3)  # age of the last signed heads, which are published once a minute
CONTACT_LATE = timedelta(seconds=120)  # age of the last answer of a cluster


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; ``fact`` is the evidence as text.

    ``needed``: the portal is not ready if this check fails. An unreachable cluster does not make the portal unready,
    because that would take the portal away from all other clusters.
    """

    name: str
    well: bool
    fact: str
    needed: bool = True


def findings(*, now: datetime) -> list[Finding]:
    """Checks the database, the broker, the sweep's heartbeat, the watch's lease and the contact to each cluster."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return [Finding("database", False, str(error).strip()), _broker()]
    clusters = fleet.clusters()
    found = [Finding("database", True, connection.vendor), _broker(), _sweep(now), _watch(now, clusters)]
    found += [*_heads(now), *_divergence()]
    found += [Finding(each.check, False, str(each.because), needed=False) for each in portal_checks.problems(now=now)]
    return found + [_contact(cluster, now) for cluster in clusters]


def ready(found: list[Finding]) -> bool:
    """Returns whether every needed check passes."""
    return all(finding.well for finding in found if finding.needed)


def _broker() -> Finding:
    if not settings.REDIS_URL:
        return Finding("broker", True, "embedded")
    times = {"socket_connect_timeout": BROKER_SECONDS, "socket_timeout": BROKER_SECONDS}
    try:
        with redis.Redis.from_url(settings.REDIS_URL, retry=Retry(NoBackoff(), 0), **times) as client:
            client.ping()
    except redis.RedisError as error:
        return Finding("broker", False, str(error))
    return Finding("broker", True, "answers")


def _sweep(now: datetime) -> Finding:
    at = runtime.heartbeat("sweep")
    if at is None:
        return Finding("sweep", False, "never ran: check that a worker and beat are running")
    return Finding("sweep", now - at <= SWEEP_LATE, f"ran {_seconds(now - at)} ago")


def _watch(now: datetime, clusters: list[Cluster]) -> Finding:
    at = runtime.lease_renewed_at(watcher.LEASE)
    if not clusters:
        return Finding("watch", True, "no cluster to watch yet")
    if at is None:
        return Finding("watch", False, "never ran: check that a watch is running")
    return Finding("watch", now - at <= WATCH_LATE, f"led {_seconds(now - at)} ago")


def _heads(now: datetime) -> list[Finding]:
    """Checks that signed heads of the audit log reach each place outside of the database."""
    rows = {row.place: row for row in anchors.publications()}
    found = []
    for place in sorted({"key", "log", *rows}):
        row, name = rows.get(place), f"audit log {place}"
        if row is None:
            found.append(
                Finding(name, False, "never published: check that a worker and beat are running", needed=False)
            )
        elif row.why is not None:
            found.append(Finding(name, False, str(row.why), needed=False))
        else:
            age = now - (row.published_at or now)
            found.append(Finding(name, age <= HEADS_LATE, f"signed heads {_seconds(age)} ago", needed=False))
    return found


def _divergence() -> list[Finding]:
    row = anchors.unanswered_divergence()
    if row is None:
        return []
    return [
        Finding("audit log anchor", False, " ".join(str(reasons.from_json(each)) for each in row.because), needed=False)
    ]


def _contact(cluster: Cluster, now: datetime) -> Finding:
    name = f"watch {cluster.name}"
    if cluster.watched_at is None:
        return Finding(name, False, reasons.text(cluster.watch_error) or "never connected to the cluster", needed=False)
    age = now - cluster.watched_at
    fact = f"last contact {_seconds(age)} ago"
    if cluster.watch_error:
        fact += f"; last error: {cluster.watch_failure}"
    return Finding(name, age <= CONTACT_LATE, fact, needed=False)


def _seconds(age: timedelta) -> str:
    return f"{age.total_seconds():.0f} s"
