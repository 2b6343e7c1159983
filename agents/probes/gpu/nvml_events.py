"""Xids from the driver's events: they confirm the kernel log, and replace it where it was not read.

The driver reports a number and a GPU, without text. Each event is held for a moment, and longer while the log is not
read to its end. It is reported only if the kernel log has not shown the same Xid by then, so that no fault is
counted twice.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from agents.host import deadline
from agents.probes.finding import ResultSink
from agents.probes.gpu import nvml
from kcover.faults.fault import Fault
from kcover.wire.fields import MAX_COUNT

log = logging.getLogger(__name__)

HOLD_TIME = timedelta(seconds=10)
LOG_LEAD_TIME = timedelta(seconds=30)  # the log line may be read this long before the event arrives
WAIT_SECONDS = 5.0  # of one wait for events, and so the longest time that releasing the driver takes
RELEASE_TIMEOUT_SECONDS = 30.0  # then a driver that does not return its events counts as hanging
RETRY_SECONDS = 300.0  # until a driver that did not answer is tried again


class XidEventSource(Protocol):
    """An open connection to the driver's events."""

    def wait(self, seconds: float) -> tuple[int, str | None] | None:
        """The next Xid and the slot of its GPU, or None. Raises nvml.DriverError."""

    def close(self) -> None:
        """Release the driver."""


class SeenInLog(Protocol):
    """``LogReader.has_seen_xid``."""

    def __call__(self, code: int, pci: str | None, *, since: datetime) -> bool:
        """Return whether the kernel log has shown this Xid since then."""


@dataclass(slots=True)
class _HeldXid:
    """An Xid event, or several equal ones, that the kernel log has not shown yet."""

    code: int
    pci: str | None
    at: datetime
    count: int = 1


class XidEventMonitor:
    """One thread calls ``run_once`` repeatedly; another one may use ``release_gpus``."""

    def __init__(
        self,
        *,
        seen_in_log: SeenInLog,
        caught_up: Callable[[], bool],
        sink: ResultSink,
        clock: Callable[[], datetime],
        connect: Callable[[], XidEventSource] = nvml.XidEvents,
        release_timeout: float = RELEASE_TIMEOUT_SECONDS,
    ) -> None:
        """``caught_up``: whether the log is read to its end, so that ``seen_in_log`` can be relied on."""
        self._seen_in_log, self._caught_up, self._sink, self._clock = seen_in_log, caught_up, sink, clock
        self._connect = connect
        self._release_timeout = release_timeout
        self._events: XidEventSource | None = None
        self._held: list[_HeldXid] = []
        self._driver_lock = threading.Lock()  # held while the driver is open
        self._resume = threading.Event()
        self._resume.set()

    def run_once(self) -> float:
        """Wait a moment for events, and report those that the log lacks. Return the seconds to pause."""
        self._resume.wait(WAIT_SECONDS)
        pause = 0.0
        with self._driver_lock:
            if self._resume.is_set():
                pause = self._listen()
        self._report()
        return min(pause, HOLD_TIME.total_seconds()) if self._held else pause

    @contextlib.contextmanager
    def release_gpus(self) -> Iterator[None]:
        """Keep this process from holding any GPU open. Raises deadline.DeadlineExceeded if the driver does not
        return."""
        self._resume.clear()
        try:
            if not self._driver_lock.acquire(timeout=self._release_timeout):
                raise deadline.DeadlineExceeded(
                    f"waiting for driver events did not return within {self._release_timeout:g} s"
                )
            try:
                deadline.within(self._release_timeout, self._release, what="closing the driver's events")
                yield
            finally:
                self._driver_lock.release()
        finally:
            self._resume.set()

    def _listen(self) -> float:
        try:
            if self._events is None:
                self._events = self._connect()
            event = self._events.wait(WAIT_SECONDS)
        except nvml.DriverError as error:
            log.log(logging.DEBUG if error.absent else logging.WARNING, "no Xid events: %s", error)
            self._release()
            return RETRY_SECONDS
        if event is not None:
            self._hold(*event)
        return 0.0

    def _hold(self, code: int, pci: str | None) -> None:
        """Hold each event by itself. While the log is not read, which may take long, equal ones are counted."""
        if not self._caught_up():
            for held in self._held:
                if (held.code, held.pci) == (code, pci):
                    held.count += 1
                    return
        self._held.append(_HeldXid(code, pci, self._clock()))

    def _release(self) -> None:
        events, self._events = self._events, None  # not used again, even if closing fails
        if events is not None:
            events.close()

    def _report(self) -> None:
        if not self._held or not self._caught_up():
            return
        now = self._clock()
        due = [held for held in self._held if not timedelta() <= now - held.at < HOLD_TIME]
        self._held = [held for held in self._held if held not in due]
        faults = [
            Fault(
                kind="xid",
                code=held.code,
                pci=held.pci,
                message=f"NVML: Xid {held.code}; the kernel log does not show it",
                seen_at=held.at,
                source="nvml",
                count=min(held.count, MAX_COUNT),
            )
            for held in due
            if not self._seen_in_log(held.code, held.pci, since=held.at - LOG_LEAD_TIME)
        ]
        if faults:
            self._sink((), faults, now)
