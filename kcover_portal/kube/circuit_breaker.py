"""Patience with an API server that does not answer: one caller waits for it, all others hear so at once.

Without it each worker's threads would hang one after the other in calls to one dead cluster, for a read time-out each,
and the other clusters would wait for them. Only reads count: a write may hang in an admission webhook of its own.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from kcover_portal.kube import errors

OPEN_SECONDS: Final = 5.0  # after a time-out, until somebody tries again


class TimedOut(errors.Unavailable):
    """The server did not answer in time."""


class CircuitBreaker:
    """What is known of one server's answering; shared by all threads that call it."""

    def __init__(self, quiet_seconds: float = OPEN_SECONDS, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet_seconds = quiet_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._silent = False
        self._trying = False
        self._quiet_until = 0.0

    @contextlib.contextmanager
    def call(self, what: str) -> Iterator[None]:
        """Around a call. Raises ``Unavailable``, before anything is sent, while the server is known not to answer."""
        trying = self._enter(what)
        try:
            yield
        except TimedOut:
            self._leave(silent=True, trying=trying)
            raise
        except BaseException:
            self._leave(silent=None, trying=trying)
            raise
        self._leave(silent=False, trying=trying)

    def _enter(self, what: str) -> bool:
        """Whether this call is the one that tries for all."""
        with self._lock:
            if not self._silent:
                return False
            wait = self._quiet_until - self._clock()
            if self._trying or wait > 0:
                raise errors.Unavailable(
                    f"{what}: not sent, as the API server has not answered lately", retry_after=max(wait, 1.0)
                )
            self._trying = True
            return True

    def _leave(self, *, silent: bool | None, trying: bool) -> None:
        """``silent``: whether it answered; None: it failed in another way, which says nothing of its being silent."""
        with self._lock:
            if trying:
                self._trying = False
            if silent is None:
                silent = self._silent and not trying
            self._silent = silent
            if silent:
                self._quiet_until = self._clock() + self._quiet_seconds
