"""Reads of the rows that the portal's processes share."""

from datetime import UTC, datetime, timedelta
from typing import Final

from kcover_portal.lib.prepared import Prepared
from kcover_portal.runtime.models import Counter, Heartbeat, Installation, Lease, LoadSample, RememberedHash

INTERVAL: Final = timedelta(minutes=5)  # between samples of the load
SAMPLES_KEPT: Final = timedelta(days=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def installation() -> Installation:
    """The settings of the whole portal; an unsaved row with the defaults if nothing was ever set."""
    return _INSTALLATION.first() or Installation()


_INSTALLATION = Prepared(lambda: Installation.objects.filter(pk=1))


def heartbeat(name: str) -> datetime | None:
    """The time of the last heartbeat; None if there was none."""
    return Heartbeat.objects.filter(name=name).values_list("at", flat=True).first()


def alive_since(name: str, *, gap: timedelta, now: datetime) -> datetime | None:
    """Start of the run of heartbeats without a gap that still lasts; None: the last heartbeat is older than ``gap``."""
    return Heartbeat.objects.filter(name=name, at__gte=now - gap).values_list("since", flat=True).first()


def lease_renewed_at(name: str) -> datetime | None:
    """The time when a holder last acquired or renewed the lease; None if never."""
    return Lease.objects.filter(name=name).values_list("renewed_at", flat=True).first()


def hashes(topic: str) -> dict[str, str]:
    """The remembered hashes of a topic, by key."""
    return dict(_HASHES.rows(topic=topic))


_HASHES: Prepared[tuple[str, str]] = Prepared(
    lambda topic: RememberedHash.objects.filter(topic=topic).values_list("key", "value"), topic=str
)


def counts(topic: str) -> dict[str, int]:
    """The counters of a topic, by name."""
    return dict(Counter.objects.filter(topic=topic).values_list("name", "count"))


def load_slot(at: datetime) -> int:
    """The place of a sample in the ring."""
    return (at - _EPOCH) // INTERVAL % (SAMPLES_KEPT // INTERVAL)


def load_samples(*, now: datetime) -> list[LoadSample]:
    """The samples of the last day, oldest first."""
    return list(LoadSample.objects.filter(at__gt=now - SAMPLES_KEPT, at__lte=now).order_by("at"))
