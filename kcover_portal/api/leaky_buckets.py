"""Rate limits in the memory of this process: one leaky bucket for each sender (GCRA).

A bucket is one number: the time at which it is empty. Senders that are quiet are forgotten.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

MAX_SENDERS = 200_000  # in memory, twice: those that sent lately, and those before them
RETENTION_SECONDS = 120.0  # the default; no sender waits for half as long

_ROUNDING_SECONDS = 1e-6  # sums of intervals are not exact

Sender = TypeVar("Sender")


class LeakyBuckets(Generic[Sender]):
    """The requests of each sender in the last seconds: ``rate`` per second, ``burst`` at once after a pause.

    ``clock`` is monotonic, in seconds. ``retention``: for how many seconds a quiet sender is remembered. A bucket that
    is full takes less than half of it to empty; raises ValueError otherwise. Safe to use from several threads.
    """

    def __init__(
        self,
        *,
        rate: float,
        burst: int,
        retention: float = RETENTION_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval, self._burst = 1 / rate, burst / rate
        self._retention, self._max_ahead = retention, retention / 2
        if self._burst >= self._max_ahead:
            raise ValueError(f"retention is {retention:g} s, must be more than {2 * self._burst:g} s: 2 * burst / rate")
        self._clock = clock
        self._lock = threading.Lock()
        self._current: dict[Sender, float] = {}
        self._earlier: dict[Sender, float] = {}
        self._renewed_at = -math.inf

    def __len__(self) -> int:
        return len(self._current) + len(self._earlier)

    def take(self, sender: Sender, count: int = 1) -> float:
        """Counts a request as ``count`` and returns 0, or the seconds to wait if the sender has sent too many.

        A ``count`` of 0 asks for the wait only.
        """
        with self._lock:
            now = self._clock()
            if now - self._renewed_at > self._retention or len(self._current) >= MAX_SENDERS:
                self._current, self._earlier, self._renewed_at = {}, self._current, now
            ahead = self._ahead(sender, now)
            if ahead > self._burst - self._interval + _ROUNDING_SECONDS:
                return ahead - self._burst + self._interval
            self._current[sender] = now + min(ahead + count * self._interval, self._max_ahead)
            return 0.0

    def add(self, sender: Sender, count: int) -> None:
        """Counts ``count`` more requests, which are never refused."""
        with self._lock:
            now = self._clock()
            self._current[sender] = now + min(self._ahead(sender, now) + count * self._interval, self._max_ahead)

    def forget(self) -> None:
        with self._lock:
            self._current, self._earlier = {}, {}

    def _ahead(self, sender: Sender, now: float) -> float:
        """The seconds until the bucket of the sender is empty."""
        at = self._current.get(sender) or self._earlier.get(sender, now)
        return max(at - now, 0.0)
