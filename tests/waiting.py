"""Waiting for what another thread or process does. Nothing here decides by how fast the machine is."""

import asyncio
import time
from collections.abc import Callable
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
