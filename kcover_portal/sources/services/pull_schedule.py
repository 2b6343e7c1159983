"""Reads the sources that the portal asks: each in a task of its own, one worker at a time, with a stored position.

The position moves in the transaction that stores what was read. A worker that dies reads again from there, and what it
had stored is known. A source that fails waits longer after each attempt, and no other source waits with it.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, Protocol

from django.db.models import F

from kcover import reasons
from kcover.sources.observation import Unreadable
from kcover.values import back_off
from kcover_portal import encryption
from kcover_portal.config import log_context
from kcover_portal.fleet.services import storable_values
from kcover_portal.lib import doorbell
from kcover_portal.runtime.services import leases
from kcover_portal.sources import queries
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import (
    gpud_pull,
    loki_pull,
    performance_pull,
    pod_log_pull,
    prometheus_pull,
    source_settings,
)
from kcover_portal.sources.services.pull_request import NotRead

log = logging.getLogger(__name__)

PULL: Final = "sources.pull"
LEASE: Final = timedelta(minutes=4)  # longer than a turn may take: with a slow Loki 20 s and then 16 requests of 10 s
CATCH_UP_PAUSE: Final = timedelta(seconds=1)  # between turns while the source catches up
LEAST_BACK_OFF: Final = timedelta(seconds=2)
MAX_BACK_OFF: Final = timedelta(minutes=5)
INTERVAL_SECONDS: Final[Mapping[str, int]] = {
    "loki": 10,
    "gpud": 60,
    "prometheus": 30,
    "performance": performance_pull.INTERVAL_SECONDS,
    "pod-logs": 30,
}

Clock = Callable[[], datetime]


class Reader(Protocol):
    """A kind of source. Both raise NotRead, Unreadable and SecretUnreadable."""

    def read(self, source: Source, *, clock: Clock) -> bool:
        """Reads and stores what is new. Returns whether there is more to read at once."""

    def seen(self, source: Source, *, since: timedelta, now: datetime) -> int:
        """The number of faults that the source shows since then. Nothing is stored."""


READERS: Final[Mapping[str, Reader]] = {
    "loki": loki_pull,
    "gpud": gpud_pull,
    "prometheus": prometheus_pull,
    "performance": performance_pull,
    "pod-logs": pod_log_pull,
}


def sweep(*, now: datetime) -> None:
    """Wakes a worker for each source that is due."""
    for pk in queries.due(now=now).values_list("pk", flat=True):
        doorbell.ring(PULL, pk)


def pull(source_id: int, *, clock: Clock) -> None:
    """Reads a source, if it is due and no other worker reads it."""
    with leases.leading(f"source {source_id}", ttl=LEASE, clock=clock) as leads:
        rows = Source.objects.select_related("cluster").filter(pk=source_id, enabled=True)
        source = rows.first() if leads else None
        if source is not None and (source.due_at is None or source.due_at <= clock()):
            with log_context.bound(cluster=source.cluster.name):
                _read(source, clock=clock)


def _read(source: Source, *, clock: Clock) -> None:
    try:
        more = READERS[source.kind].read(source, clock=clock)
    except (NotRead, Unreadable, encryption.SecretUnreadable) as error:
        _failed(source, error.reason, wait=getattr(error, "wait", 0.0), now=clock())
    except Exception as error:  # whatever a source answers, it is read again later
        log.exception("source %s: it could not be read", source.name)
        problem = reasons.of("source_broken", problem=storable_values.error_text(error))
        _failed(source, problem, wait=0.0, now=clock())
    else:
        now = clock()
        interval = timedelta(seconds=source.settings.get("interval", INTERVAL_SECONDS[source.kind]))
        due_at = now + (CATCH_UP_PAUSE if more else interval)
        Source.objects.filter(pk=source.pk).update(due_at=due_at, attempts=0, last_contact_at=now)
        if source.attempts:
            source_settings.note_error(source, None, now=now)


def _failed(source: Source, reason: reasons.Reason, *, wait: float, now: datetime) -> None:
    due_at = now + back_off.doubled(source.attempts + 1, least=LEAST_BACK_OFF, most=MAX_BACK_OFF, asked=wait)
    log.warning("source %s: %s", source.name, reason)
    Source.objects.filter(pk=source.pk).update(attempts=F("attempts") + 1, due_at=due_at)
    source_settings.note_error(source, reason, now=now)


def seen_lately(source: Source, *, since: timedelta, now: datetime) -> tuple[int, reasons.Reason | None]:
    """The number of faults that the source shows since then, and why it cannot be read. Nothing is stored."""
    try:
        return READERS[source.kind].seen(source, since=since, now=now), None
    except (NotRead, Unreadable, encryption.SecretUnreadable) as error:
        return 0, error.reason
