"""The queue of incidents that a worker process decides: incidents that wait together are decided together.

In each lane (one for each cluster), one thread at a time decides and takes everything that waits. So a lone fault is
decided at once, and the more faults there are, the more of them share a transaction. If the process dies, the sweep
rings for them again.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

MAX_WAITING = 2_000  # incidents in one lane; the sweep rings again for what is turned away
BATCH_INCIDENTS = 64  # incidents in one transaction


class WaitingIncidents:
    """The waiting incidents of one process, by lane."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, dict[int, None]] = {}  # in the order of arrival
        self._deciding: set[int] = set()

    def add(self, lane: int, incidents: Sequence[int]) -> None:
        """Adds incidents at the end of the lane, unless they wait already or the lane is full."""
        with self._lock:
            waiting = self._waiting.setdefault(lane, {})
            for incident in incidents:
                if len(waiting) < MAX_WAITING:
                    waiting[incident] = None

    def take(self, lane: int) -> list[int]:
        """Takes what waits, oldest first. The caller decides these incidents inside ``deciding``.

        The list is empty if nothing waits, or if another thread decides in this lane: that thread takes them next.
        """
        with self._lock:
            waiting = self._waiting.get(lane)
            if not waiting or lane in self._deciding:
                return []
            self._deciding.add(lane)
            taken = list(waiting)[:BATCH_INCIDENTS]
            for incident in taken:
                del waiting[incident]
            if not waiting:
                del self._waiting[lane]
            return taken

    @contextmanager
    def deciding(self, lane: int) -> Iterator[None]:
        """The time in which a thread decides what it has taken; afterwards another thread may decide in the lane."""
        try:
            yield
        finally:
            with self._lock:
                self._deciding.discard(lane)

    def next_waiting(self, lane: int) -> int | None:
        """The incident that has waited longest."""
        with self._lock:
            return next(iter(self._waiting.get(lane, ())), None)
