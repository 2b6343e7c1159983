"""Long work in slices, so that no web request waits: workers take a row in turn, each for some seconds.

A slice holds a lease on the row and a place of the portal. If its worker dies, another one goes on from the last
progress.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from django.db import transaction
from django.db.models import F, Model, QuerySet

from kcover import reasons
from kcover_portal.lib import doorbell
from kcover_portal.runtime.services import claims, concurrency_limits

SLICE_SECONDS = 5.0
LEASE_TIME: Final = timedelta(seconds=60)
MAX_SLICES: Final = 3  # begun without progress: each lost its worker

Clock = Callable[[], datetime]
Progress = tuple[Mapping[str, Any], Sequence[Model]]  # columns to write, and rows to create with them
Work = Callable[[Any, float, Clock], Iterator[Progress]]


class Failed(reasons.ExplainedError):
    """The work cannot go on."""


@dataclass(frozen=True, kw_only=True)
class SlicedWork:
    """The work of a model's rows. ``task`` does a slice of it, in one of the places of ``limit``.

    ``work`` yields progress until nothing is left, or raises Failed. It gets the row, and the end of the slice by the
    monotonic clock. ``interrupted``: why it fails after the loss of several workers.
    """

    model: Any
    work: Work
    limit: concurrency_limits.ConcurrencyLimit
    task: str
    interrupted: reasons.Reason | None = None

    def due(self, *, now: datetime) -> list[int]:
        """Returns the rows that wait for a worker or whose worker is lost, the oldest first."""
        rows = self._going_on(now=now).filter(claims.free(now=now))
        return list(rows.order_by("pk").values_list("pk", flat=True))

    def advance(self, pk: int, *, clock: Clock) -> None:
        """Does one slice, unless another worker does, the work has ended, or all places are taken."""
        try:
            with concurrency_limits.held(self.limit, f"{self.limit.name}:{pk}"):
                self._advance(pk, clock=clock)
        except concurrency_limits.Busy:
            return  # the next round finds it

    def end(self, pk: int, state: str, *, now: datetime) -> None:
        """Ends the work, unless it has ended. A worker stops at its next progress."""
        rows = self.model.objects.filter(pk=pk, state__in=self.model.OPEN)
        rows.update(lease_until=None, **_ended(state, now=now))

    @cached_property
    def _claims(self) -> claims.Claims[Any]:
        return claims.Claims(model=self.model, due=self._going_on, lasts=LEASE_TIME, mark="holder", state="running")

    def _going_on(self, *, now: datetime) -> QuerySet[Any]:
        rows: QuerySet[Any] = self.model.objects.filter(state__in=self.model.OPEN)
        return rows

    def _advance(self, pk: int, *, clock: Clock) -> None:
        mine = self._claims
        row = mine.take(pk, now=clock(), state="running", slices=F("slices") + 1)
        if row is None:
            return
        if row.slices > MAX_SLICES:
            mine.put_back(row, **_ended("failed", self.interrupted, now=clock()))
            return
        until = time.monotonic() + SLICE_SECONDS
        try:
            for columns, rows in self.work(row, until, clock):
                with transaction.atomic():
                    if not mine.renew(row, now=clock(), slices=0, **columns):
                        return
                    if rows:
                        type(rows[0])._default_manager.bulk_create(rows, ignore_conflicts=True)
                if time.monotonic() >= until:
                    mine.put_back(row)
                    doorbell.ring(self.task, pk)
                    return
        except Failed as failed:
            mine.put_back(row, **_ended("failed", failed.reason, now=clock()))
            return
        mine.put_back(row, **_ended("done", now=clock()))


def _ended(state: str, because: reasons.Reason | None = None, *, now: datetime) -> dict[str, Any]:
    """The columns of a row whose work has ended. ``because``: why it failed."""
    more = {"because": because.to_json()} if because is not None else {}
    return {"state": state, "ended_at": now, "holder": "", "pending": [], **more}
