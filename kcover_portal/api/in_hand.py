"""Requests in hand, in the memory of this process: one of each sender, and few of all senders.

A sender that repeats itself faster than it is answered occupies one thread, and all senders together occupy a part of
the threads, so that pages stay fast.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Sender = TypeVar("Sender")


class SenderBusy(Exception):
    """Another request of the sender is in hand, or as many as there may be of all senders."""


class InHand(Generic[Sender]):
    """The senders whose requests are being served; ``most`` at once. Safe to use from several threads."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._senders: set[Sender] = set()

    @contextmanager
    def hold(self, sender: Sender) -> Iterator[None]:
        """Serves a request of the sender for the block. Raises SenderBusy at once, because waiting costs a thread."""
        with self._lock:
            if sender in self._senders or len(self._senders) >= self._most:
                raise SenderBusy
            self._senders.add(sender)
        try:
            yield
        finally:
            with self._lock:
                self._senders.discard(sender)
