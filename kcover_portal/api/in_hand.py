"""Requests in hand, in the memory of this process: one of each sender, and few of all senders.

A sender that repeats itself faster than it is answered occupies one thread, and all senders together occupy a part of
the threads, so that pages stay fast. Busy senders make room for those that found no place.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

Sender = TypeVar("Sender")
# Both are a little longer than a sender waits until it tries again (the Retry-After of a refusal). A place that is kept
# for a sender that does not come serves nobody.
TURN_SECONDS: Final = 3.0  # how long a refused sender is waited for
BUSY_SECONDS: Final = 3.0  # how long after its last request a sender counts as busy


class SenderBusy(Exception):
    """Another request of the sender is in hand, as many as there may be of all senders, or it must make room."""


class InHand(Generic[Sender]):
    """The senders whose requests are being served; ``most`` at once. Safe to use from several threads.

    A busy sender leaves a free place to each sender that was refused and did not come again yet, and takes the last one
    itself. A sender that was not served lately takes any free place. So turns never keep a place from everybody.
    """

    def __init__(self, *, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._lock = threading.Lock()
        self._senders: set[Sender] = set()
        self._turns: dict[Sender, float] = {}  # when the turns of refused senders end
        self._busy: dict[Sender, float] = {}  # until when senders count as busy

    @contextmanager
    def hold(self, sender: Sender) -> Iterator[None]:
        """Serves a request of the sender for the block. Raises SenderBusy at once, because waiting costs a thread."""
        with self._lock:
            self._admit(sender)
        try:
            yield
        finally:
            with self._lock:
                self._senders.discard(sender)
                self._busy[sender] = self._clock() + BUSY_SECONDS

    def _admit(self, sender: Sender) -> None:
        if sender in self._senders:
            raise SenderBusy
        now = self._clock()
        self._turns = {one: ends for one, ends in self._turns.items() if ends > now}
        self._busy = {one: ends for one, ends in self._busy.items() if ends > now}
        others = len(self._turns) - (sender in self._turns)
        kept = min(others, self._most - 1) if sender in self._busy else 0
        if len(self._senders) + kept >= self._most:
            if sender not in self._busy:  # trying again does not prolong a turn
                self._turns.setdefault(sender, now + TURN_SECONDS)
            raise SenderBusy
        self._turns.pop(sender, None)
        self._senders.add(sender)
