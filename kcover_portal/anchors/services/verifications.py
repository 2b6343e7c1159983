"""Verifies hash chains in the background: workers read them in slices, so that no web request waits.

A slice holds a lease on the row and the portal's only place for verifications. If its worker dies, another one goes on
from the last progress.
"""

import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet, Sum

from kcover_portal.anchors.models import Verification
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Chain
from kcover_portal.lib import doorbell
from kcover_portal.runtime.services import claims, concurrency_limits, retention

MAX_OPEN = 20  # verifications of everybody
SLICE_SECONDS = 5.0
CHUNK_ENTRIES = 5_000  # entries between two writes of progress
LEASE_TIME = timedelta(seconds=60)
MAX_SLICES = 3  # begun without progress: each lost its worker

Clock = Callable[[], datetime]
State = Verification.State


def begin(chains: Collection[str], *, owner: str, now: datetime) -> Verification:
    """Stores a verification of these chains, or returns the open one of the same owner. Raises places.Busy."""
    opened = Verification.objects.filter(state__in=Verification.OPEN)
    own = opened.filter(owner=owner)
    if (row := own.first()) is not None:
        return row
    if opened.count() >= MAX_OPEN:
        raise concurrency_limits.Busy(concurrency_limits.VERIFICATIONS, own=False)
    total = Chain.objects.filter(cluster__in=chains).aggregate(total=Sum("sequence"))["total"] or 0
    try:
        with transaction.atomic():
            row = Verification.objects.create(
                owner=owner, pending=sorted(chains, reverse=True), total=total, requested_at=now
            )
    except IntegrityError:  # a request of the same person at the same moment
        return own.get()
    doorbell.ring("anchors.advance_verification", row.pk)
    return row


def due(*, now: datetime) -> list[int]:
    """Returns the verifications that wait for a worker or whose worker is lost, the oldest first."""
    return list(_free(now).filter(state__in=Verification.OPEN).order_by("pk").values_list("pk", flat=True))


def prune(*, now: datetime) -> None:
    """Deletes old verifications."""
    Verification.objects.filter(ended_at__lt=retention.before(Verification, now=now)).delete()


def advance(pk: int, *, clock: Clock) -> None:
    """Does one slice of a verification, unless another worker does, it has ended, or the place is taken."""
    try:
        with concurrency_limits.held(concurrency_limits.VERIFICATIONS, f"verification:{pk}"):
            _slice(pk, holder=secrets.token_hex(16), clock=clock)
    except concurrency_limits.Busy:
        return  # the next round finds it


def _slice(pk: int, *, holder: str, clock: Clock) -> None:
    now = clock()
    free = _free(now).filter(pk=pk, state__in=Verification.OPEN)
    if not free.update(state=State.RUNNING, holder=holder, lease_until=now + LEASE_TIME):
        return
    row = Verification.objects.get(pk=pk)
    if row.slices >= MAX_SLICES:
        _store(row, holder=holder, state=State.FAILED, ended_at=now, lease_until=None)
        return
    _store(row, holder=holder, slices=row.slices + 1)
    until = time.monotonic() + SLICE_SECONDS
    while row.pending or row.position:
        _verify_some(row)
        progress = {name: getattr(row, name) for name in ("pending", "position", "verdicts", "done")}
        if not _store(row, holder=holder, **progress, slices=0, lease_until=clock() + LEASE_TIME):
            return  # another worker has it
        if time.monotonic() >= until:
            break
    if row.pending or row.position:
        _store(row, holder=holder, lease_until=None)
        doorbell.ring("anchors.advance_verification", pk)
        return
    _store(row, holder=holder, state=State.DONE, ended_at=clock(), lease_until=None)


def _verify_some(row: Verification) -> None:
    """Verifies the next CHUNK_ENTRIES entries of the chain that is under way, or of the next chain."""
    position = ledger.Position(**row.position) if row.position else ledger.start(row.pending.pop())
    found = ledger.verify_part(position, most=CHUNK_ENTRIES)
    if isinstance(found, ledger.Position):
        row.position, row.done = asdict(found), row.done + found.sequence - position.sequence
        return
    row.position, row.done = {}, row.done + found.entries - position.sequence
    because = found.because.to_json() if found.because is not None else {}
    verdict = {"cluster": found.cluster, "entries": found.entries, "broken_at": found.broken_at, "because": because}
    row.verdicts = [*row.verdicts, verdict]


def _store(row: Verification, *, holder: str, **changes: Any) -> bool:
    """Returns whether the verification is still this worker's."""
    return bool(Verification.objects.filter(pk=row.pk, holder=holder, state=State.RUNNING).update(**changes))


def _free(now: datetime) -> QuerySet[Verification]:
    return Verification.objects.filter(claims.free(now=now))
