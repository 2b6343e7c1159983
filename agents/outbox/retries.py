"""Schedules retries of reports that were not accepted, and lets other reports go first."""

import logging
import random
from collections.abc import Callable
from datetime import datetime, timedelta

from agents.uplink.protocol import PortalFailed, ReportDeferred, UplinkError

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5  # doubled with every failure
MAX_PAUSE_SECONDS = 30.0
LONG_PAUSE_SECONDS = 60.0  # the log says why the agent waits that long, each time
MAX_FAILURES_OF_ONE_REPORT = 3  # then other reports go first


def jittered_delay(
    retry_after: float | None, pause: float, *, uniform: Callable[[float, float], float] = random.uniform
) -> float:
    """Seconds until the next call: the portal's ``retry_after``, or else ``pause``, plus jitter.

    Agents that failed together do not come back together.
    """
    if retry_after is None:
        return pause * uniform(0.5, 1.0)
    return retry_after + uniform(0.0, min(5.0, retry_after))


class Retries:
    """Counts failures since the portal last accepted a report, and the failures of each single report."""

    def __init__(self, rng: random.Random) -> None:
        """``rng`` adds jitter to the pauses."""
        self._rng = rng
        self._failures = 0
        self._paused_at: datetime | None = None
        self._pause = timedelta()
        self._failures_by_report: dict[str, int] = {}  # by batch ID; only while the portal accepts others
        self._another_succeeded = False  # since the last failure

    def succeeded(self) -> None:
        """The portal accepted a report."""
        if self._failures:
            log.info("the portal accepts reports again after %d failures", self._failures)
        self._failures, self._paused_at = 0, None
        self._another_succeeded = True

    def failed(self, error: UplinkError, *, waiting: int, now: datetime) -> None:
        """A report was not accepted: pause. ``waiting`` is the number of reports in the spool, for the log."""
        longest = min(FIRST_PAUSE_SECONDS * 2**self._failures, MAX_PAUSE_SECONDS)
        pause = jittered_delay(error.retry_after, longest, uniform=self._rng.uniform)
        self._failures = min(self._failures + 1, 16)
        self._paused_at, self._pause = now, timedelta(seconds=pause)
        is_told = self._failures in (1, 4, 8, 16) or pause >= LONG_PAUSE_SECONDS
        level = logging.WARNING if is_told else logging.DEBUG
        log.log(level, "report not accepted, %d in the spool, next attempt in %.1f s: %s", waiting, pause, error)

    def must_yield(self, batch_id: str, error: UplinkError) -> bool:
        """Return whether other reports go before this spooled one, which just failed with ``error``.

        They do if the portal refuses the report for now, fails on it repeatedly while it accepts others, or says that
        it broke.
        """
        if isinstance(error, ReportDeferred):
            return True
        if self._another_succeeded or isinstance(error, PortalFailed):
            self._failures_by_report[batch_id] = self._failures_by_report.get(batch_id, 0) + 1
        self._another_succeeded = False
        return self._failures_by_report.get(batch_id, 0) >= MAX_FAILURES_OF_ONE_REPORT

    def forget(self, batch_id: str) -> None:
        """Forget the failures of this report."""
        self._failures_by_report.pop(batch_id, None)

    def remaining(self, now: datetime) -> float:
        """Seconds left of the current pause."""
        if self._paused_at is None or now < self._paused_at:  # a clock set back must not silence it
            return 0.0
        return max(0.0, (self._paused_at + self._pause - now).total_seconds())
