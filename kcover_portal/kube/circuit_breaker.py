"""A circuit breaker per API server: after a time-out one caller probes the server, and the others fail at once.

Without it, the threads of a worker would all end up waiting for one dead cluster, each for a read time-out. The other
clusters would get no thread. Only reads count, because a write may hang in an admission webhook.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from kcover import reasons
from kcover_portal.kube import errors

OPEN_SECONDS: Final = 5.0  # from a time-out until the next probe


class TimedOut(errors.Unavailable):
    """The server did not answer in time."""


class CircuitBreaker:
    """The state of one API server; shared by all threads that call it."""

    def __init__(self, quiet_seconds: float = OPEN_SECONDS, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet_seconds = quiet_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._silent = False
        self._probing = False
        self._quiet_until = 0.0

    @contextlib.contextmanager
    def call(self, what: str) -> Iterator[None]:
        """Wraps a call. Raises ``Unavailable`` before anything is sent while the circuit is open."""
        probing = self._enter(what)
        try:
            yield
        except TimedOut:
            self._leave(silent=True, probing=probing)
            raise
        except BaseException:
            self._leave(silent=None, probing=probing)
            raise
        self._leave(silent=False, probing=probing)

    def _enter(self, what: str) -> bool:
        """Returns whether this call is the probe."""
        with self._lock:
            if not self._silent:
                return False
            wait = self._quiet_until - self._clock()
            if self._probing or wait > 0:
                raise errors.Unavailable(reasons.of("api_server_silent", call=what), retry_after=max(wait, 1.0))
            self._probing = True
            return True

    def _leave(self, *, silent: bool | None, probing: bool) -> None:
        """``silent``: True after a time-out, False after an answer, None after any other failure."""
        with self._lock:
            if probing:
                self._probing = False
            if silent is None:
                silent = self._silent and not probing
            self._silent = silent
            if silent:
                self._quiet_until = self._clock() + self._quiet_seconds
