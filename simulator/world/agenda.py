"""What happens when: actions in the order of their due times, played by whoever owns the clock."""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

log = logging.getLogger(__name__)

Action = Callable[[], None]


@dataclass(slots=True, order=True)
class Entry:
    """One planned action. ``cancel`` takes it off."""

    due: datetime
    number: int
    action: Action | None = field(compare=False)

    def cancel(self) -> None:
        """Never mind."""
        self.action = None


class Agenda:
    """Planned actions over one clock (``now``: aware UTC). One thread only, that of the event loop.

    An action that raises is logged and forgotten: one broken pod must not stop a cluster.
    """

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        self.now = now
        self._entries: list[Entry] = []
        self._numbers = itertools.count()
        self._wake: asyncio.Event | None = None
        self._ahead: datetime | None = None  # the time that actions played ahead believe it is

    def after(self, seconds: float, action: Action) -> Entry:
        """Plan an action; what is due at the same time is played in the order of planning."""
        entry = Entry((self._ahead or self.now()) + timedelta(seconds=seconds), next(self._numbers), action)
        heapq.heappush(self._entries, entry)
        if self._wake is not None and self._entries[0] is entry:
            self._wake.set()
        return entry

    @property
    def next_due(self) -> datetime | None:
        """When the next action is due, None when there is none."""
        while self._entries and self._entries[0].action is None:
            heapq.heappop(self._entries)
        return self._entries[0].due if self._entries else None

    def play(self, *, ahead: float = 0.0) -> int:
        """Do all that is due by now, also what that plans for now. Returns how many actions were done.

        ``ahead``: what is due within so many seconds is done now too, in order: that brings a new world into swing.
        """
        done = 0
        try:
            while (due := self.next_due) is not None and due <= self.now() + timedelta(seconds=ahead):
                self._ahead = due if ahead else None
                self._do(heapq.heappop(self._entries))
                done += 1
        finally:
            self._ahead = None
        return done

    async def run(self) -> None:
        """Play for ever on the real clock; ends by cancellation."""
        self._wake = asyncio.Event()
        try:
            while True:
                self._wake.clear()
                self._play_slice()
                due = self.next_due
                wait = None if due is None else max((due - self.now()).total_seconds(), 0.0)
                try:
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                # Also when everything is always due, others in this loop (the API) get their turn.
                await asyncio.sleep(0)
        finally:
            self._wake = None

    def _play_slice(self, most: int = 200) -> None:
        for _ in range(most):
            due = self.next_due
            if due is None or due > self.now():
                return
            self._do(heapq.heappop(self._entries))

    @staticmethod
    def _do(entry: Entry) -> None:
        if entry.action is None:
            return
        try:
            entry.action()
        except Exception:
            log.exception("agenda: an action failed")


class ManualClock:
    """A clock that stands still until told. ``advance`` plays an agenda on the way."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def __call__(self) -> datetime:
        return self._now

    def advance(self, seconds: float, agenda: Agenda) -> None:
        """Let time pass, stopping at every action that falls due."""
        end = self._now + timedelta(seconds=seconds)
        agenda.play()
        while (due := agenda.next_due) is not None and due <= end:
            self._now = max(self._now, due)
            agenda.play()
        self._now = end
