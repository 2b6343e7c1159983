"""A lock that many callers may hold together, or one exclusively."""

import contextlib
import threading
from collections.abc import Iterator


class SharedLock:
    """Callers that want it exclusively go before new shared ones.

    A hold may end in another thread than it began in, for example for a call that hangs in its own thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shared_holders = 0
        self._exclusive = False

    @contextlib.contextmanager
    def shared(self, *, timeout: float, within_exclusive: bool = False) -> Iterator[None]:
        """Hold it with others.

        ``within_exclusive``: for the holder of the exclusive lock. Raises TimeoutError after ``timeout`` seconds.
        """
        with self._changed:
            if not within_exclusive and not self._changed.wait_for(lambda: not self._exclusive, timeout):
                raise TimeoutError
            self._shared_holders += 1
        try:
            yield
        finally:
            with self._changed:
                self._shared_holders -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def exclusive(self, *, timeout: float) -> Iterator[None]:
        """Hold it alone. Raises TimeoutError if the others do not release it within ``timeout`` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._exclusive, timeout):
                raise TimeoutError
            self._exclusive = True
        try:
            with self._changed:
                if not self._changed.wait_for(lambda: not self._shared_holders, timeout):
                    raise TimeoutError
            yield
        finally:
            with self._changed:
                self._exclusive = False
                self._changed.notify_all()
