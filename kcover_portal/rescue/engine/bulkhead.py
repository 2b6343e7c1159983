"""The bulkhead: limits how many of a worker's threads one cluster may take, so that no cluster slows down another.

A call to an API server that hangs holds its thread until the time-out. Each cluster has a lane of its own, which leaves
threads for the other clusters and for the sweep. Work that does not fit waits in memory, in order, for the next free
thread of the lane. If the worker dies, the sweep finds the waiting work, like everything that is due.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)

MAX_WAITING = 1_000  # in one lane; the sweep rings again for what is turned away

Work = Callable[[], None]


class Bulkhead:
    """The lanes of one worker process that has ``threads`` threads."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._busy: dict[int, int] = {}
        self._waiting: dict[int, deque[Work]] = {}

    def run(self, lane: int, work: Work, *, lanes: int) -> None:
        """Does the work in this thread, or leaves it to a thread of the lane. ``lanes``: the number of lanes.

        Raises the errors of the work, after doing the work that was queued in the meantime.
        """
        if not self._enter(lane, work, lanes=lanes):
            return
        error: Exception | None = None
        following: Work | None = work
        try:
            while following is not None:
                try:
                    following()
                except Exception as raised:
                    if following is not work:
                        log.exception("queued work of lane %s failed; the sweep rings for it again", lane)
                    else:
                        error = raised
                following = self._next(lane)
        except BaseException:
            self._leave(lane)
            raise
        if error is not None:
            raise error

    def drop_waiting(self) -> None:
        """Drops the work that waits. The sweep finds it again."""
        with self._lock:
            self._waiting.clear()

    def _enter(self, lane: int, work: Work, *, lanes: int) -> bool:
        with self._lock:
            busy = self._busy.get(lane, 0)
            if busy < self._width(lanes):
                self._busy[lane] = busy + 1
                return True
            waiting = self._waiting.setdefault(lane, deque())
            if len(waiting) < MAX_WAITING:
                waiting.append(work)
            return False

    def _width(self, lanes: int) -> int:
        """Threads of one lane: all but one if there is one cluster, else half of them."""
        return max(1, self._threads - 1 if lanes <= 1 else self._threads // 2)

    def _next(self, lane: int) -> Work | None:
        """The work that has waited longest. If none waits, frees the place in the lane and returns None."""
        with self._lock:
            waiting = self._waiting.get(lane)
            if waiting:
                return waiting.popleft()
            self._give_back(lane)
            return None

    def _leave(self, lane: int) -> None:
        with self._lock:
            self._give_back(lane)

    def _give_back(self, lane: int) -> None:
        """Frees a place in the lane; the caller holds the lock. The last thread of a lane leaves no work in it."""
        self._busy[lane] -= 1
        if not self._busy[lane]:
            del self._busy[lane]
            self._waiting.pop(lane, None)
