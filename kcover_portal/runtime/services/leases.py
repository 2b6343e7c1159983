"""Leases: one holder at a time among all processes."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q

from kcover_portal.lib.prepared import Prepared, PreparedUpdate
from kcover_portal.runtime.models import Lease


def acquire(name: str, *, holder: str, until: datetime, now: datetime) -> bool:
    """Acquires or renews the lease. Returns whether ``holder`` holds it now. The database decides between rivals."""
    free = partial(_OWN_OR_OVER.run, name=name, now=now, holder=holder)
    return _take(name, free, holder=holder, until=until, now=now)


def release(name: str, *, holder: str, now: datetime) -> None:
    """Ends the holder's lease, so that another process can acquire it at once."""
    Lease.objects.filter(name=name, holder=holder).update(until=now)


def throttle(name: str, *, every: timedelta, now: datetime) -> bool:
    """Returns whether the caller may go ahead: true for one call of all processes per period."""
    return _take(name, partial(_OVER.run, name=name, now=now), holder="", until=now + every, now=now)


_OVER = PreparedUpdate(lambda name, now: Lease.objects.filter(name=name, until__lte=now), name=str, now=datetime)
_OWN_OR_OVER = PreparedUpdate(
    lambda name, now, holder: Lease.objects.filter(Q(until__lte=now) | Q(holder=holder), name=name),
    name=str,
    now=datetime,
    holder=str,
)
_KNOWN = Prepared(lambda name: Lease.objects.filter(name=name).values_list("pk"), name=str)


def _take(name: str, free: Callable[[Mapping[str, Any]], int], *, holder: str, until: datetime, now: datetime) -> bool:
    if free(values := {"holder": holder, "until": until, "renewed_at": now}):
        return True
    if _KNOWN.rows(name=name):
        return False
    try:
        with transaction.atomic():
            Lease.objects.create(name=name, **values)
    except IntegrityError:  # a rival made it meanwhile
        return False
    return True


@dataclass(slots=True, kw_only=True)
class BlockLease:
    """The lease of a block of code. It is true if the caller holds it."""

    name: str
    ttl: timedelta
    clock: Callable[[], datetime]
    holder: str
    held: bool

    def __bool__(self) -> bool:
        return self.held

    def renew(self) -> bool:
        """Begins the ``ttl`` again, between two parts of a long job. Returns False once another caller has had it."""
        now = self.clock()
        rows = Lease.objects.filter(name=self.name, holder=self.holder)
        self.held = self.held and bool(rows.update(until=now + self.ttl, renewed_at=now))
        return self.held


@contextmanager
def leading(name: str, *, ttl: timedelta, clock: Callable[[], datetime]) -> Iterator[BlockLease]:
    """Yields the lease, true if this caller holds it: for the block and at most ``ttl``, unless it is renewed."""
    now, holder = clock(), str(uuid.uuid4())
    held = acquire(name, holder=holder, until=now + ttl, now=now)
    lease = BlockLease(name=name, ttl=ttl, clock=clock, holder=holder, held=held)
    try:
        yield lease
    finally:
        if lease:
            release(name, holder=holder, now=clock())
