"""Runs each probe in a thread of its own, under a deadline.

A probe that raises is an ``error`` of the probe. A probe that does not return is a finding of its own. Neither delays
another probe or the heartbeat.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from agents.probes.changes import ChangeFilter
from agents.probes.finding import Finding, Observation, Probe, ResultSink, Severity, finding

log = logging.getLogger(__name__)

CHECK_NAME = "probe"  # the check on the probes themselves; its device is the name of the probe
HUNG_AFTER_DEADLINES = 4  # a late run counts as hung after this many deadlines
MAX_SLEEP_SECONDS = 15.0


@dataclass(slots=True)
class _ProbeState:
    """One probe and its current run, if there is one."""

    probe: Probe
    due: float
    changes: ChangeFilter = field(default_factory=ChangeFilter)
    started_at: float | None = None
    answer: list[Observation | Exception] = field(default_factory=list)


class ProbeRunner:
    """Runs probes when they are due. One thread calls ``run_due`` repeatedly."""

    def __init__(
        self,
        probes: Sequence[Probe],
        *,
        sink: ResultSink,
        observed: Callable[[Observation, datetime], None],
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``sink`` takes the check results and faults worth reporting, ``observed`` all that a run found."""
        self._sink, self._observed, self._clock, self._monotonic = sink, observed, clock, monotonic
        start = monotonic()
        self._states = [_ProbeState(probe, start) for probe in probes]
        self._state_changes = ChangeFilter()
        self._finished = threading.Event()

    def run_due(self) -> float:
        """Start the runs that are due, collect those that ended, report those that are late. Return the seconds until
        there may be more to do."""
        self._finished.clear()
        soonest = MAX_SLEEP_SECONDS
        for state in self._states:
            now = self._monotonic()
            if state.answer:
                self._collect(state)
            if state.started_at is None and state.due <= now:
                self._start(state, now)
            if state.started_at is not None and now - state.started_at > state.probe.deadline_seconds:
                self._record_state([_late(state, now - state.started_at)])
            soonest = min(soonest, max(0.0, state.due - now) if state.started_at is None else MAX_SLEEP_SECONDS)
        return soonest

    def wait(self, seconds: float) -> None:
        """Sleep until a run ends, at most for ``seconds``."""
        self._finished.wait(seconds)

    def wake(self) -> None:
        """Interrupt ``wait``."""
        self._finished.set()

    @property
    def late_probes(self) -> tuple[str, ...]:
        """The names of the probes that are past their deadline now."""
        now = self._monotonic()
        return tuple(
            state.probe.name
            for state in self._states
            if state.started_at is not None and now - state.started_at > state.probe.deadline_seconds
        )

    def _start(self, state: _ProbeState, now: float) -> None:
        state.started_at = now
        state.due = now + state.probe.interval_seconds

        def observe() -> None:
            try:
                state.answer.append(state.probe.observe(self._clock()))
            except Exception as error:  # reported as an error of the probe
                state.answer.append(error)
            self._finished.set()

        threading.Thread(target=observe, name=f"probe-{state.probe.name}", daemon=True).start()

    def _collect(self, state: _ProbeState) -> None:
        answer = state.answer.pop()
        state.started_at = None
        if isinstance(answer, Exception):
            log.warning("probe %s raised an error: %r", state.probe.name, answer)
            message = f"{type(answer).__name__}: {answer}"
            self._record_state([finding(CHECK_NAME, Severity.ERROR, device=state.probe.name, message=message)])
            return
        now = self._clock()
        self._observed(answer, now)
        checks, faults = state.changes.select(answer.findings, now=now, source=state.probe.name)
        for check in checks:
            if check.status != "pass":
                log.warning("%s: %s", state.probe.name, check)
        if checks or faults or answer.faults:
            self._sink(checks, [*answer.faults, *faults], now)
        self._record_state([finding(CHECK_NAME, Severity.OK, device=state.probe.name)])

    def _record_state(self, findings: Sequence[Finding]) -> None:
        now = self._clock()
        checks, faults = self._state_changes.select(findings, now=now)
        if checks or faults:
            self._sink(checks, faults, now)


def _late(state: _ProbeState, seconds: float) -> Finding:
    probe = state.probe
    hung = seconds > HUNG_AFTER_DEADLINES * probe.deadline_seconds
    limit = probe.deadline_seconds * (HUNG_AFTER_DEADLINES if hung else 1)
    message = f"no answer for more than {limit:.0f} s: the driver or tool that the probe calls hangs"
    return finding(CHECK_NAME, probe.hang_severity if hung else Severity.WARNING, device=probe.name, message=message)
