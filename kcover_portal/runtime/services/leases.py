"""Leases: one holder at a time among all processes."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db.models import Q

from kcover_portal.runtime.models import Lease


def acquire(name: str, *, holder: str, until: datetime, now: datetime) -> bool:
    """Acquires or renews the lease. Returns whether ``holder`` holds it now. The database decides between rivals."""
    return _take(name, Q(until__lte=now) | Q(holder=holder), holder=holder, until=until, now=now)


def release(name: str, *, holder: str, now: datetime) -> None:
    """Ends the holder's lease, so that another process can acquire it at once."""
    Lease.objects.filter(name=name, holder=holder).update(until=now)


def throttle(name: str, *, every: timedelta, now: datetime) -> bool:
    """Returns whether the caller may go ahead: true for one call of all processes per period."""
    return _take(name, Q(until__lte=now), holder="", until=now + every, now=now)


def _take(name: str, free: Q, *, holder: str, until: datetime, now: datetime) -> bool:
    fields = {"holder": holder, "until": until, "renewed_at": now}
    if Lease.objects.filter(free, name=name).update(**fields):
        return True
    _, created = Lease.objects.get_or_create(name=name, defaults=fields)
    return created


@contextmanager
def leading(name: str, *, ttl: timedelta, clock: Callable[[], datetime]) -> Iterator[bool]:
    """Yields whether this caller holds the lease, for the block and at most ``ttl``."""
    now, holder = clock(), str(uuid.uuid4())
    leads = acquire(name, holder=holder, until=now + ttl, now=now)
    try:
        yield leads
    finally:
        if leads:
            release(name, holder=holder, now=clock())
