"""Xids by the driver's own events: they confirm the kernel log, and fill in where it was not read.

The driver tells a number and a GPU, and no text. Each is held for a moment, and while the log is left unread until that
is made up for; only where the kernel log has not told the same by then is it reported, so that one fault is not counted
twice.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from agents import deadline
from agents.commands import Keep
from agents.probes import nvml
from agents.probes.kmsg import MAX_COUNT
from kcover.fault import Fault

log = logging.getLogger(__name__)

HOLD = timedelta(seconds=10)
LOG_BEFORE = timedelta(seconds=30)  # the log's line may be read this long before the event
SLICE = 5.0  # seconds a wait for events lasts: how long letting go of the driver may take
LET_GO = 30.0  # seconds until a driver that keeps its events open counts as one that does not answer
RETRY = 300.0  # seconds until a driver that did not answer is asked again


class Events(Protocol):
    """An open line to the driver's events."""

    def wait(self, seconds: float) -> tuple[int, str | None] | None:
        """The next Xid and its GPU's slot, or None. Raises nvml.DriverError."""

    def close(self) -> None:
        """Lets go of the driver."""


class Logged(Protocol):
    """``Logs.told``."""

    def __call__(self, code: int, pci: str | None, *, since: datetime) -> bool:
        """Whether the kernel log told of this Xid since then."""


@dataclass(slots=True)
class _Held:
    code: int
    pci: str | None
    at: datetime
    count: int = 1


class SecondSource:
    """Driven by one thread calling ``turn``; ``hands_off`` may be used from another."""

    def __init__(
        self,
        *,
        logged: Logged,
        caught_up: Callable[[], bool],
        keep: Keep,
        clock: Callable[[], datetime],
        connect: Callable[[], Events] = nvml.XidEvents,
        patience: float = LET_GO,
    ) -> None:
        """``caught_up``: whether the log is read up to now, so that ``logged`` can be believed."""
        self._logged, self._caught_up, self._keep, self._clock = logged, caught_up, keep, clock
        self._connect = connect
        self._patience = patience
        self._events: Events | None = None
        self._held: list[_Held] = []
        self._line = threading.Lock()  # held while the driver is open and waited for
        self._resume = threading.Event()
        self._resume.set()

    def turn(self) -> float:
        """Waits for events for a moment and reports what the log did not tell. Returns seconds to pause."""
        self._resume.wait(SLICE)
        pause = 0.0
        with self._line:
            if self._resume.is_set():
                pause = self._listen()
        self._report()
        return min(pause, HOLD.total_seconds()) if self._held else pause

    @contextlib.contextmanager
    def hands_off(self) -> Iterator[None]:
        """Within, this process holds no GPU open. Raises deadline.Late where the driver does not let go of it."""
        self._resume.clear()
        try:
            if not self._line.acquire(timeout=self._patience):
                raise deadline.Late(f"the driver's events did not come back within {self._patience:g} s")
            try:
                deadline.within(self._patience, self._let_go, what="letting go of the driver's events")
                yield
            finally:
                self._line.release()
        finally:
            self._resume.set()

    def _listen(self) -> float:
        try:
            if self._events is None:
                self._events = self._connect()
            event = self._events.wait(SLICE)
        except nvml.DriverError as error:
            log.log(logging.DEBUG if error.absent else logging.WARNING, "no Xid events: %s", error)
            self._let_go()
            return RETRY
        if event is not None:
            self._hold(*event)
        return 0.0

    def _hold(self, code: int, pci: str | None) -> None:
        """Each by itself; while the log is left unread, which may take long, equal ones are counted."""
        if not self._caught_up():
            for held in self._held:
                if (held.code, held.pci) == (code, pci):
                    held.count += 1
                    return
        self._held.append(_Held(code, pci, self._clock()))

    def _let_go(self) -> None:
        events, self._events = self._events, None  # whatever becomes of it, it is not used again
        if events is not None:
            events.close()

    def _report(self) -> None:
        if not self._held or not self._caught_up():
            return
        now = self._clock()
        ripe = [one for one in self._held if not timedelta() <= now - one.at < HOLD]
        self._held = [one for one in self._held if one not in ripe]
        faults = [
            Fault(
                kind="xid",
                code=one.code,
                pci=one.pci,
                message=f"NVML: Xid {one.code}; the kernel log does not tell of it",
                seen_at=one.at,
                source="nvml",
                count=min(one.count, MAX_COUNT),
            )
            for one in ripe
            if not self._logged(one.code, one.pci, since=one.at - LOG_BEFORE)
        ]
        if faults:
            self._keep((), faults, now)
