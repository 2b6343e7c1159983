"""Checks on a timer: light ones often, heavy ones seldom, and each first run a little after the start."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.checks.runner import Runner
from agents.commands import Keep

LONGEST_NAP = 60.0


@dataclass(slots=True, kw_only=True)
class Round:
    """Checks that run together each ``every`` seconds, first after ``first``."""

    names: tuple[str, ...]
    every: float
    first: float
    args: Mapping[str, Any]


class Schedule:
    """``turn`` is called again and again by one thread."""

    def __init__(
        self,
        rounds: Sequence[Round],
        *,
        runner: Runner,
        keep: Keep,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._runner, self._keep, self._clock, self._monotonic = runner, keep, clock, monotonic
        start = monotonic()
        self._due = [(start + one.first, one) for one in rounds if one.names]

    def turn(self) -> float:
        """Runs what is due, however long that takes. Returns the seconds until something is."""
        due = self._due
        for place, (at, one) in enumerate(due):
            if at <= self._monotonic():
                results = self._runner.run(one.names, one.args)
                now = self._clock()
                self._keep(results, self._runner.faults(results, now=now), now)
                due[place] = self._monotonic() + one.every, one
        soonest = min((at for at, _ in due), default=float("inf"))
        return min(max(soonest - self._monotonic(), 0.0), LONGEST_NAP)
