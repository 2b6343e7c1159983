"""How many new events a sender may have stored: many at once, as a backfill is, and few for as long as it likes.

Kept in the memory of this process. A rate of requests does not bound this: a request holds a thousand events.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

SECONDS_PER_HOUR = 3600.0

Sender = TypeVar("Sender")


class EventBudget(Generic[Sender]):
    """The events of each sender: ``at_once`` after a long pause, ``per_hour`` when these are used up.

    ``clock`` is monotonic, in seconds. Safe to use from several threads. Senders are few: only admins make them.
    """

    def __init__(self, *, at_once: int, per_hour: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once, self._per_second = at_once, per_hour / SECONDS_PER_HOUR
        self._clock = clock
        self._lock = threading.Lock()
        self._used: dict[Sender, tuple[float, float]] = {}  # how many, and when that was

    def wait(self, sender: Sender) -> float:
        """Returns 0, or the seconds until the sender may have further events stored."""
        with self._lock:
            return max(0.0, self._used_by(sender) - self._at_once + 1) / self._per_second

    def add(self, sender: Sender, count: int) -> None:
        """Counts events that were stored."""
        with self._lock:
            self._used[sender] = self._used_by(sender) + count, self._clock()

    def _used_by(self, sender: Sender) -> float:
        """What the sender has used, less what the time since has given back."""
        used, at = self._used.get(sender, (0.0, 0.0))
        return max(0.0, used - (self._clock() - at) * self._per_second)
