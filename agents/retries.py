"""When a report that was not taken is sent again, and whether the others pass before it."""

import logging
import random
from collections.abc import Callable
from datetime import datetime, timedelta

from agents.uplink import Broke, SetAside, UplinkError

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.5  # seconds, doubled with every failure
LONGEST_PAUSE = 30.0
STUCK = 3  # failures over one report, while the portal works otherwise, until the others pass before it


def spread(
    retry_after: float | None, pause: float, *, uniform: Callable[[float, float], float] = random.uniform
) -> float:
    """Seconds until the next call, as asked for or after a ``pause`` of one's own: agents that failed together do not
    come back together."""
    if retry_after is None:
        return pause * uniform(0.5, 1.0)
    return retry_after + uniform(0.0, min(5.0, retry_after))


class Retries:
    """The failures since the portal last took something, and those over each report that it does not take."""

    def __init__(self, rng: random.Random) -> None:
        """``rng`` spreads the pauses."""
        self._rng = rng
        self._failures = 0
        self._paused_at: datetime | None = None
        self._pause = timedelta()
        self._over: dict[str, int] = {}  # failures over a report, by its batch id, while the portal worked otherwise
        self._took_another = False  # since a report failed for the last time

    def taken(self) -> None:
        """The portal took a report."""
        if self._failures:
            log.info("the portal answers again after %d failures", self._failures)
        self._failures, self._paused_at = 0, None
        self._took_another = True

    def failed(self, error: UplinkError, *, waiting: int, now: datetime) -> None:
        """It did not: none is sent for a while. ``waiting``: how many are kept, for the log."""
        longest = min(FIRST_PAUSE * 2**self._failures, LONGEST_PAUSE)
        pause = spread(error.retry_after, longest, uniform=self._rng.uniform)
        self._failures = min(self._failures + 1, 16)
        self._paused_at, self._pause = now, timedelta(seconds=pause)
        level = logging.WARNING if self._failures in (1, 4, 8, 16) else logging.DEBUG
        log.log(level, "report kept, %d waiting, again in %.1f s: %s", waiting, pause, error)

    def stuck(self, batch_id: str, error: UplinkError) -> bool:
        """Whether this spooled report, which just failed so, has to let others pass: the portal does not want it now,
        or fails over it again and again though it takes others in between or says that it broke."""
        if isinstance(error, SetAside):
            return True
        if self._took_another or isinstance(error, Broke):
            self._over[batch_id] = self._over.get(batch_id, 0) + 1
        self._took_another = False
        return self._over.get(batch_id, 0) >= STUCK

    def forget(self, batch_id: str) -> None:
        """This report waits no more."""
        self._over.pop(batch_id, None)

    def remaining(self, now: datetime) -> float:
        """Seconds of the pause that are left."""
        if self._paused_at is None or now < self._paused_at:  # a clock that was set back must not silence the agent
            return 0.0
        return max(0.0, (self._paused_at + self._pause - now).total_seconds())
