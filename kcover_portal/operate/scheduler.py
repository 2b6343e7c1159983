"""Celery's scheduler: the schedule, and beside it the sweeps, which are sent only if they have work (``sweeps``).

If the database does not answer, sweeps are sent as if all of them had work.
"""

import logging
import math
import time
from collections.abc import Callable
from typing import Any, Final

from celery import beat
from django.db import connection
from django.db.utils import Error as DatabaseError
from django.utils import timezone

from kcover_portal.operate import heartbeats, sweeps

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.5  # between looks for work
BACKOFF_SECONDS: Final = 5.0  # without looks, after the database did not answer


class Scheduler(beat.Scheduler):
    """Keeps the times of the last runs in memory only."""

    def __init__(self, *args: Any, clock: Callable[[], float] = time.monotonic, **kwargs: Any) -> None:
        self._clock = clock
        self._schedule_at = self._look_at = self._unseen_until = -math.inf
        self._looked: dict[str, float] = {}  # by task
        self._sent: dict[str, float] = {}
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Sends what is due. Returns the seconds until the next call; 0 if more may be due now."""
        heartbeats.touch()
        now = self._clock()
        if now >= self._look_at:
            self._look(now)
            self._look_at = now + POLL_SECONDS
        # Celery compares times of day for each entry, which costs more than a look.
        if now >= self._schedule_at:
            self._schedule_at = now + super().tick(*args, **kwargs)
        return max(0.0, min(self._look_at, self._schedule_at) - self._clock())

    def schedules_equal(self, old_schedules: Any, new_schedules: Any) -> bool:
        """Returns True except for the first time: the schedule never changes, and to compare it costs CPU."""
        return old_schedules is not None

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Sends one task. Without the broker that is one line; Celery would add two stacks of this process."""
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except beat.SchedulingError as error:
            log.warning("%s", error)

    def _ensure_connected(self) -> Any:
        heartbeats.while_connecting(self.connection)
        return super()._ensure_connected()  # type: ignore[misc]  # the stubs leave it out

    def close(self) -> None:
        """Ends the scheduler."""
        super().close()
        connection.close()

    def _look(self, now: float) -> None:
        for sweep in sweeps.SWEEPS:
            if now - self._looked.get(sweep.task, -math.inf) < sweep.every - POLL_SECONDS / 2:
                continue
            self._looked[sweep.task] = now
            late = now - self._sent.get(sweep.task, -math.inf) >= sweep.latest - POLL_SECONDS / 2
            if late or self._has_work(sweep, now=now):
                self._sent[sweep.task] = now
                expires = {"expires": 5 * sweep.every}
                entry = self.Entry(sweep.task, sweep.task, options=expires, app=self.app)
                self.apply_entry(entry, producer=self.producer)

    def _has_work(self, sweep: sweeps.Sweep, *, now: float) -> bool:
        if now < self._unseen_until:
            return True
        try:
            return sweep.has_work(timezone.now())
        except DatabaseError as error:
            log.warning("the work that is due cannot be read: %s", error)
            connection.close()
            self._unseen_until = self._clock() + BACKOFF_SECONDS
            return True


class PersistentScheduler(Scheduler, beat.PersistentScheduler):
    """Keeps the times of the last runs in a file, too, so that a restart of beat does not delay hourly work."""
