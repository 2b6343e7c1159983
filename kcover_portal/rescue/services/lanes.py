"""Lanes: how many of a worker's threads one cluster may take, so that none slows another down.

A call to an API server that hangs holds its thread until the time-out. Each cluster has a lane of its own, which leaves
threads to the others (and to the sweep); what does not fit waits in memory, in its order, and is taken on by the thread
that gets free. What waits there when the worker dies is found by the sweep, as everything that is due.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)

MOST_WAITING = 1_000  # of one lane; the sweep rings again for what is turned away

Work = Callable[[], None]


class Lanes:
    """The lanes of one worker process with so many ``threads``."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._busy: dict[int, int] = {}
        self._waiting: dict[int, deque[Work]] = {}

    def run(self, lane: int, work: Work, *, lanes: int) -> None:
        """Does the work in this thread, or leaves it to one that is in the lane already; ``lanes``: how many there are.

        Raises what the work raised, once what had come to wait meanwhile is done.
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
                        log.exception("what had waited in lane %s failed; the sweep rings for it again", lane)
                    else:
                        error = raised
                following = self._next(lane)
        except BaseException:
            self._leave(lane)
            raise
        if error is not None:
            raise error

    def _enter(self, lane: int, work: Work, *, lanes: int) -> bool:
        with self._lock:
            busy = self._busy.get(lane, 0)
            if busy < self._width(lanes):
                self._busy[lane] = busy + 1
                return True
            waiting = self._waiting.setdefault(lane, deque())
            if len(waiting) < MOST_WAITING:
                waiting.append(work)
            return False

    def _width(self, lanes: int) -> int:
        """Threads of one lane: all but one where there is one cluster, else half of them."""
        return max(1, self._threads - 1 if lanes <= 1 else self._threads // 2)

    def _next(self, lane: int) -> Work | None:
        """What waits longest; None, and the place is given back, where nothing does."""
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
        """Under the lock. Whoever leaves a lane last leaves nothing in it."""
        self._busy[lane] -= 1
        if not self._busy[lane]:
            del self._busy[lane]
            self._waiting.pop(lane, None)
