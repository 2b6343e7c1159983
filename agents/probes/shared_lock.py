"""A lock that many may hold together, or one alone."""

import contextlib
import threading
from collections.abc import Iterator


class SharedLock:
    """Who wants it alone goes before newcomers. A hold may end in another thread than it began in, as that of a call
    which hangs in a thread of its own."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._together = 0
        self._alone = False

    @contextlib.contextmanager
    def together(self, *, patience: float, within_alone: bool = False) -> Iterator[None]:
        """Held with others. ``within_alone``: on behalf of the one who holds it alone. Raises TimeoutError after
        ``patience`` seconds."""
        with self._changed:
            if not within_alone and not self._changed.wait_for(lambda: not self._alone, patience):
                raise TimeoutError
            self._together += 1
        try:
            yield
        finally:
            with self._changed:
                self._together -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self, *, patience: float) -> Iterator[None]:
        """Held by nobody else. Raises TimeoutError where the others do not let go within ``patience`` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._alone, patience):
                raise TimeoutError
            self._alone = True
        try:
            with self._changed:
                if not self._changed.wait_for(lambda: not self._together, patience):
                    raise TimeoutError
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()
