"""The event queue of the simulation: actions in the order of their due times. The owner of the clock plays them."""

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
class PlannedAction:
    """A planned action."""

    due: datetime
    number: int
    action: Action | None = field(compare=False)

    def cancel(self) -> None:
        self.action = None


class Agenda:
    """Planned actions over one clock (``now``: aware UTC). Single-threaded: use it from the event loop only.

    An action that raises is logged and dropped, so that one broken pod does not stop the cluster.
    """

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        self.now = now
        self._entries: list[PlannedAction] = []
        self._numbers = itertools.count()
        self._wake: asyncio.Event | None = None
        self._ahead: datetime | None = None  # the clock of actions that are played ahead

    def after(self, seconds: float, action: Action) -> PlannedAction:
        """Plan an action. Actions that are due at the same time run in the order in which they were planned."""
        entry = PlannedAction((self._ahead or self.now()) + timedelta(seconds=seconds), next(self._numbers), action)
        heapq.heappush(self._entries, entry)
        if self._wake is not None and self._entries[0] is entry:
            self._wake.set()
        return entry

    @property
    def next_due(self) -> datetime | None:
        """The time when the next action is due; None if nothing is planned."""
        while self._entries and self._entries[0].action is None:
            heapq.heappop(self._entries)
        return self._entries[0].due if self._entries else None

    def play(self, *, ahead: float = 0.0) -> int:
        """Run every action that is due, including those planned meanwhile. Return the number of actions that ran.

        ``ahead``: also run, in order, the actions that fall due within this many seconds. A new world starts in full
        operation this way.
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
        """Play on the real clock until cancelled."""
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
                # Yield even if something is always due, so that the API in the same loop keeps responding.
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
    def _do(entry: PlannedAction) -> None:
        if entry.action is None:
            return
        try:
            entry.action()
        except Exception:
            log.exception("agenda: an action failed")


class ManualClock:
    """A clock that only ``advance`` moves."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def __call__(self) -> datetime:
        return self._now

    def advance(self, seconds: float, agenda: Agenda) -> None:
        """Let time pass, and run every action at the moment it falls due."""
        end = self._now + timedelta(seconds=seconds)
        agenda.play()
        while (due := agenda.next_due) is not None and due <= end:
            self._now = max(self._now, due)
            agenda.play()
        self._now = end
