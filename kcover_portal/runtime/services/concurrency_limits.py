"""Places for expensive requests: few at a time in the whole portal, and fewer for one person.

A place is a lease in the database, so the bound holds across processes and needs no Redis. A caller that finds no place
is refused at once and told when to try again, because a caller that waits occupies a thread of the web process. The
place of a process that died becomes free when its lease ends.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from kcover import reasons
from kcover_portal.runtime.models import Lease
from kcover_portal.runtime.services import leases


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyLimit:
    """``size`` places, of which a person or token may hold ``per_person``; a holder renews within ``lasts``."""

    name: str
    size: int
    per_person: int
    lasts: timedelta
    retry_after: int = 2  # seconds


EXPORTS = ConcurrencyLimit(name="export", size=4, per_person=1, lasts=timedelta(minutes=1), retry_after=10)
EXPORT_STARTS = ConcurrencyLimit(
    name="export start", size=60, per_person=10, lasts=timedelta(minutes=1), retry_after=30
)
VALIDATIONS = ConcurrencyLimit(name="validation", size=2, per_person=1, lasts=timedelta(seconds=30))
LOGS = ConcurrencyLimit(name="log", size=2, per_person=1, lasts=timedelta(minutes=1))
VERIFICATIONS = ConcurrencyLimit(name="verification", size=1, per_person=1, lasts=timedelta(minutes=5), retry_after=10)
TRIES = ConcurrencyLimit(name="policy try", size=2, per_person=1, lasts=timedelta(minutes=1))  # slices of workers
SOURCE_TESTS = ConcurrencyLimit(name="source test", size=2, per_person=1, lasts=timedelta(minutes=2))
ACCESS_TESTS = ConcurrencyLimit(name="access test", size=2, per_person=1, lasts=timedelta(minutes=1))
# A page of the console, its dialog, and the page before, whose request goes on after its reader has left.
CLUSTER_READS = ConcurrencyLimit(name="cluster read", size=6, per_person=3, lasts=timedelta(minutes=1))
REPORTS = ConcurrencyLimit(name="report", size=3, per_person=2, lasts=timedelta(minutes=1))


class Busy(reasons.ExplainedError):
    """All places are taken, or those of this person. It can be tried again after ``retry_after`` seconds."""

    def __init__(self, limit: ConcurrencyLimit, *, own: bool) -> None:
        self.retry_after = limit.retry_after
        wait = reasons.span(timedelta(seconds=limit.retry_after))
        super().__init__(reasons.of("places_own_taken" if own else "places_taken", wait=wait))


@dataclass(frozen=True, slots=True)
class ConcurrencySlot:
    """A place that is held until ``give_back``, or until it was not renewed in time."""

    limit: ConcurrencyLimit
    holder: str
    names: tuple[str, str]  # of the leases: of the person, of the portal

    def renew(self, *, now: datetime) -> bool:
        """Returns whether the place was still held."""
        until = now + self.limit.lasts
        rows = Lease.objects.filter(name__in=self.names, holder=self.holder, until__gt=now)
        return rows.update(until=until, renewed_at=now) == len(self.names)

    def give_back(self, *, now: datetime) -> None:
        own, shared = self.names
        leases.release(shared, holder=self.holder, now=now)
        Lease.objects.filter(name=own, holder=self.holder).delete()  # one row a person would otherwise stay for ever


def take(limit: ConcurrencyLimit, who: str, *, now: datetime) -> ConcurrencySlot:
    """Takes a place for ``who``, such as ``user:3``. Raises Busy."""
    holder = secrets.token_hex(16)
    own = _first_free(f"{limit.name} {who}", limit.per_person, limit, holder=holder, now=now)
    if own is None:
        raise Busy(limit, own=True)
    shared = _first_free(f"{limit.name} place", limit.size, limit, holder=holder, now=now)
    if shared is None:
        Lease.objects.filter(name=own, holder=holder).delete()
        raise Busy(limit, own=False)
    return ConcurrencySlot(limit, holder, (own, shared))


@contextmanager
def held(limit: ConcurrencyLimit, who: str) -> Iterator[ConcurrencySlot]:
    """Holds a place for the block. Raises Busy."""
    place = take(limit, who, now=timezone.now())
    try:
        yield place
    finally:
        place.give_back(now=timezone.now())


def _first_free(name: str, size: int, limit: ConcurrencyLimit, *, holder: str, now: datetime) -> str | None:
    for number in range(1, size + 1):
        lease = f"{name} {number}"
        if leases.acquire(lease, holder=holder, until=now + limit.lasts, now=now):
            return lease
    return None
