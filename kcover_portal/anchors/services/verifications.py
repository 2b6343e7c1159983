"""Verifies hash chains in the background: workers read them in slices, one at a time in the portal."""

from collections.abc import Collection, Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models import Sum

from kcover_portal.anchors.models import Verification
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Chain
from kcover_portal.lib import doorbell
from kcover_portal.runtime.services import concurrency_limits, retention, slices

MAX_OPEN = 20  # verifications of everybody
CHUNK_ENTRIES = 5_000  # entries between two writes of progress


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
    doorbell.ring(WORK.task, row.pk)
    return row


def prune(*, now: datetime) -> None:
    """Deletes old verifications."""
    Verification.objects.filter(ended_at__lt=retention.before(Verification, now=now)).delete()


def _work(row: Verification, until: float, clock: slices.Clock) -> Iterator[slices.Progress]:
    while row.pending or row.position:
        _verify_some(row)
        yield {name: getattr(row, name) for name in ("pending", "position", "verdicts", "done")}, ()


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


WORK: Final = slices.SlicedWork(
    model=Verification,
    work=_work,
    limit=concurrency_limits.VERIFICATIONS,
    task="anchors.advance_verification",
)
due, advance = WORK.due, WORK.advance
