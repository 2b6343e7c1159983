"""Xids by the driver's own events: they confirm the kernel log, and fill in where it was not read.

The driver tells a number and a GPU, and no text. Each is held for a moment; only where the kernel log has not told the
same by then is it reported, so that one fault is not counted twice.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from agents.commands import Keep
from agents.probes import nvml
from kcover.fault import Fault

log = logging.getLogger(__name__)

HOLD = timedelta(seconds=10)
LOG_BEFORE = timedelta(seconds=30)  # the log's line may be read this long before the event
SLICE = 5.0  # seconds a wait for events lasts: how long letting go of the driver may take
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


@dataclass(frozen=True, slots=True)
class _Held:
    code: int
    pci: str | None
    at: datetime


class SecondSource:
    """Driven by one thread calling ``turn``; ``hands_off`` may be used from another."""

    def __init__(
        self,
        *,
        logged: Logged,
        keep: Keep,
        clock: Callable[[], datetime],
        connect: Callable[[], Events] = nvml.XidEvents,
    ) -> None:
        self._logged, self._keep, self._clock, self._connect = logged, keep, clock, connect
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
        return 0.0 if self._held else pause

    @contextlib.contextmanager
    def hands_off(self) -> Iterator[None]:
        """Within, this process holds no GPU open."""
        self._resume.clear()
        try:
            with self._line:
                self._let_go()
                yield
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
            self._held.append(_Held(*event, self._clock()))
        return 0.0

    def _let_go(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None

    def _report(self) -> None:
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
            )
            for one in ripe
            if not self._logged(one.code, one.pci, since=one.at - LOG_BEFORE)
        ]
        if faults:
            self._keep((), faults, now)
