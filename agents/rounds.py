"""Looking at the node, each probe in a thread of its own under a deadline.

A probe that breaks is an ``error`` of the probe, a probe that does not come back is a finding of its own, and neither
holds up another probe or the heartbeat.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from agents.commands import Keep
from agents.probes.changes import Changes
from agents.probes.finding import Finding, Probe, Reading, finding

log = logging.getLogger(__name__)

NAME = "probe"  # the check that says how a probe itself is; its device is the probe's name
HUNG = 4  # deadlines until a late look counts as hung
LONGEST_NAP = 15.0


@dataclass(slots=True)
class _Lane:
    """One probe and the look under way, if there is one."""

    probe: Probe
    due: float
    changes: Changes = field(default_factory=Changes)
    since: float | None = None
    answer: list[Reading | Exception] = field(default_factory=list)


class Rounds:
    """Runs probes when they are due. ``turn`` is called again and again by one thread."""

    def __init__(
        self,
        probes: Sequence[Probe],
        *,
        keep: Keep,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``keep`` takes what is news: check results and faults."""
        self._keep, self._clock, self._monotonic = keep, clock, monotonic
        start = monotonic()
        self._lanes = [_Lane(probe, start) for probe in probes]
        self._said = Changes()
        self._ended = threading.Event()

    def turn(self) -> float:
        """Starts the looks that are due, takes in those that ended, tells of those that are late. Returns the seconds
        until there may be something to do."""
        self._ended.clear()
        soonest = LONGEST_NAP
        for lane in self._lanes:
            now = self._monotonic()
            if lane.answer:
                self._take(lane)
            if lane.since is None and lane.due <= now:
                self._start(lane, now)
            if lane.since is not None and now - lane.since > lane.probe.deadline:
                self._tell([_late(lane, now - lane.since)])
            soonest = min(soonest, max(0.0, lane.due - now) if lane.since is None else LONGEST_NAP)
        return soonest

    def wait(self, seconds: float) -> None:
        """Sleeps until a look ended, at most so long."""
        self._ended.wait(seconds)

    def wake(self) -> None:
        """Ends a ``wait`` under way."""
        self._ended.set()

    @property
    def late(self) -> tuple[str, ...]:
        """The probes that are past their deadline now."""
        now = self._monotonic()
        return tuple(
            lane.probe.name for lane in self._lanes if lane.since is not None and now - lane.since > lane.probe.deadline
        )

    def _start(self, lane: _Lane, now: float) -> None:
        lane.since = now
        lane.due = now + lane.probe.every

        def look() -> None:
            try:
                lane.answer.append(lane.probe.look(self._clock()))
            except Exception as error:  # told as an error of the probe
                lane.answer.append(error)
            self._ended.set()

        threading.Thread(target=look, name=f"probe-{lane.probe.name}", daemon=True).start()

    def _take(self, lane: _Lane) -> None:
        answer = lane.answer.pop()
        lane.since = None
        if isinstance(answer, Exception):
            log.warning("probe %s: %r", lane.probe.name, answer)
            message = f"{type(answer).__name__}: {answer}"
            self._tell([finding(NAME, "error", device=lane.probe.name, message=message)])
            return
        now = self._clock()
        checks, faults = lane.changes.news(answer.findings, now=now, source=lane.probe.name)
        for check in checks:
            if check.status != "pass":
                log.warning("%s: %s", lane.probe.name, check)
        if checks or faults or answer.faults:
            self._keep(checks, [*answer.faults, *faults], now)
        self._tell([finding(NAME, False, device=lane.probe.name)])

    def _tell(self, findings: Sequence[Finding]) -> None:
        now = self._clock()
        checks, faults = self._said.news(findings, now=now)
        if checks or faults:
            self._keep(checks, faults, now)


def _late(lane: _Lane, seconds: float) -> Finding:
    probe = lane.probe
    hung = seconds > HUNG * probe.deadline
    message = f"has not come back since {probe.deadline * (HUNG if hung else 1):.0f} s: what it asks hangs"
    return finding(NAME, "fail" if hung else "warn", device=probe.name, message=message, fault=probe.hung_is_fault)
