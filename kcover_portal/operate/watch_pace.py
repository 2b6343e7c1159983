"""How a watch goes on: from where it was, with a list again, or as after a failure.

A server, or a proxy before it, may end each watch at once, or say each time that the version is too old. A loop that
takes this for normal asks without a pause, and one that goes on from its version never sees a change again.
"""

import time
from collections.abc import Callable
from typing import Final

from kcover_portal.kube import port

EARLY_SECONDS: Final = 2.0  # a healthy server lets a watch last until its timeout, of at least five seconds
MAX_EARLY: Final = 3  # in a row; a server that restarts ends one or two
SILENT_SECONDS: Final = 600.0  # without a new version: nodes report every five minutes, and servers send bookmarks


class Pace:
    """What one watch has seen. ``elapsed``: a clock of seconds that never goes back."""

    def __init__(self, *, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._heard_at = elapsed()
        self._early = self._expired = 0

    def stream(self, follow: Callable[[str], str], version: str) -> str:
        """Follows changes by ``follow``; returns the version to continue from, "" for a list.

        Raises port.Unavailable if the last watches ended early.
        """
        began = self._elapsed()
        after = follow(version)
        now = self._elapsed()
        if after != version:
            self._heard_at = now
        if now - began >= EARLY_SECONDS:
            self._early = self._expired = 0
        else:
            self._early += 1
        if self._early >= MAX_EARLY:
            raise port.Unavailable(f"the last {self._early} watches ended within {EARLY_SECONDS:.0f} s")
        if now - self._heard_at > SILENT_SECONDS:
            self._heard_at = now
            return ""
        return after

    def is_failure(self) -> bool:
        """Notes that a version was too old. Returns whether so was that of the list before."""
        self._expired += 1
        return self._expired > 1
