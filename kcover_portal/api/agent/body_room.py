"""Room in memory for bodies while they are received and stored: bounded for all senders, and for each."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class NoRoom(Exception):
    """The bodies in memory have reached their bound."""


class BodyRoom:
    """The bytes that are held, in all and by sender. Used in one event loop."""

    def __init__(self) -> None:
        self._held = 0
        self._held_by: Counter[str] = Counter()

    @contextmanager
    def take(
        self, owner: str, *, total: int, each: int, full: type[Exception] = NoRoom
    ) -> Iterator[Callable[[int], None]]:
        """Room for a body of this sender while it is read and kept.

        The function takes more of it, byte by byte as they come in, and raises ``full`` beyond ``total`` bytes of all
        senders or ``each`` of this one; all of it is given back at the end.
        """
        taken = 0

        def hold(size: int) -> None:
            nonlocal taken
            if self._held + size > total or self._held_by[owner] + size > each:
                raise full
            taken += size
            self._held += size
            self._held_by[owner] += size

        try:
            yield hold
        finally:
            self._held -= taken
            self._held_by[owner] -= taken
            if not self._held_by[owner]:
                del self._held_by[owner]
