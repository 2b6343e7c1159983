"""Waiting for what another thread or process does. Nothing here decides by how fast the machine is."""

import asyncio
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

HANG_SECONDS = 60.0  # a stalled core delays a thread by seconds; only what hangs takes this long
T = TypeVar("T")


def until(look: Callable[[], T], what: str = "the condition", *, seconds: float = HANG_SECONDS) -> T:
    """Looks until there is something, and returns it."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.01)
    return found


async def until_async(look: Callable[[], T], what: str = "the condition", *, seconds: float = HANG_SECONDS) -> T:
    """As ``until``, while other tasks of the loop go on."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        await asyncio.sleep(0.01)
    return found


class CountedLock:
    """A lock that counts those who asked for it, so that a test sees that a thread waits."""

    def __init__(self) -> None:
        self.asked = 0
        self._lock = threading.Lock()

    def acquire(self, *, timeout: float = -1) -> bool:
        self.asked += 1
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
