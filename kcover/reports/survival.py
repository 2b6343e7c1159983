"""Times until something ended, of which some have not ended: the estimate of Kaplan and Meier.

A fault that was not recovered when the report ends is censored: it lasted at least so long. To leave it out would make
slow recoveries look fast.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Final

ROUNDING: Final = 1e-9  # of a product of thousands of shares


@dataclass(frozen=True, slots=True, order=True)
class Lasted:
    """How long something lasted; ``ended`` False: at least so long."""

    time: timedelta
    ended: bool = True


@dataclass(frozen=True, slots=True)
class Times:
    """The distribution of such times. ``curve``: the share that has ended after each time, in order of time."""

    number: int
    ended: int
    curve: Sequence[tuple[timedelta, float]]

    @property
    def open(self) -> int:
        """How many have not ended."""
        return self.number - self.ended

    def quantile(self, share: float) -> timedelta | None:
        """The time after which so many have ended; None if fewer have, as far as is known."""
        return next((time for time, reached in self.curve if reached >= share - ROUNDING), None)

    @property
    def median(self) -> timedelta | None:
        """The time after which half have ended."""
        return self.quantile(0.5)

    @property
    def p90(self) -> timedelta | None:
        """The time after which 90 % have ended."""
        return self.quantile(0.9)


def times(lasted: Iterable[Lasted]) -> Times:
    """The distribution. Of equal times, those that ended come first: the others lasted longer."""
    ordered = sorted(lasted, key=lambda one: one.time)
    left, going, curve = len(ordered), 1.0, list[tuple[timedelta, float]]()
    for time, same in groupby(ordered, key=lambda one: one.time):
        found = [one.ended for one in same]
        if any(found):
            going *= (left - sum(found)) / left
            curve.append((time, 1 - going))
        left -= len(found)
    return Times(len(ordered), sum(one.ended for one in ordered), curve)


NONE: Final = times(())
