"""Health checks on a timer: light ones often, deep ones seldom."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.checks.check_runner import CheckRunner
from agents.probes.finding import ResultSink

MAX_SLEEP_SECONDS = 60.0


@dataclass(slots=True, kw_only=True)
class ScheduledChecks:
    """Checks that run together every ``interval_seconds``, the first time after ``first_after_seconds``."""

    names: tuple[str, ...]
    interval_seconds: float
    first_after_seconds: float
    args: Mapping[str, Any]


class CheckSchedule:
    """One thread calls ``run_due`` repeatedly."""

    def __init__(
        self,
        groups: Sequence[ScheduledChecks],
        *,
        runner: CheckRunner,
        sink: ResultSink,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._runner, self._sink, self._clock, self._monotonic = runner, sink, clock, monotonic
        start = monotonic()
        self._due = [(start + group.first_after_seconds, group) for group in groups if group.names]

    def run_due(self) -> float:
        """Run the checks that are due, however long they take. Return the seconds until the next ones are due."""
        due = self._due
        for index, (at, group) in enumerate(due):
            if at <= self._monotonic():
                results = self._runner.run(group.names, group.args)
                now = self._clock()
                self._sink(results, self._runner.faults(results, now=now), now)
                due[index] = self._monotonic() + group.interval_seconds, group
        soonest = min((at for at, _ in due), default=float("inf"))
        return min(max(soonest - self._monotonic(), 0.0), MAX_SLEEP_SECONDS)
