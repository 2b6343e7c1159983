"""Confidence intervals of shares and rates, with 95 % where nothing else is said."""

from dataclasses import dataclass
from math import sqrt
from typing import Final

Z: Final = 1.959964  # of 95 %


@dataclass(frozen=True, slots=True)
class Share:
    """``part`` of ``whole``, with the interval of Wilson; the values are None if ``whole`` is 0."""

    part: int
    whole: int

    @property
    def value(self) -> float | None:
        """The share, 0 to 1."""
        return self.part / self.whole if self.whole else None

    @property
    def low(self) -> float | None:
        """The lower end of the interval."""
        return max(0.0, self._ends()[0]) if self.whole else None

    @property
    def high(self) -> float | None:
        """The upper end of the interval."""
        return min(1.0, self._ends()[1]) if self.whole else None

    def _ends(self) -> tuple[float, float]:
        share, n = self.part / self.whole, self.whole
        middle = share + Z * Z / (2 * n)
        spread = Z * sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
        return (middle - spread) / (1 + Z * Z / n), (middle + spread) / (1 + Z * Z / n)


@dataclass(frozen=True, slots=True)
class Between:
    """Mean hours between ``events`` in so many ``hours``, with Byar's interval of a Poisson count.

    Without an event there is no mean and no upper end, but a lower end.
    """

    hours: float
    events: int

    @property
    def value(self) -> float | None:
        """The mean."""
        return self.hours / self.events if self.events else None

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        n = self.events + 1
        return self.hours / (n * (1 - 1 / (9 * n) + Z / (3 * sqrt(n))) ** 3)

    @property
    def high(self) -> float | None:
        """The upper end of the interval; None: there is none."""
        n = self.events
        fewest = n * (1 - 1 / (9 * n) - Z / (3 * sqrt(n))) ** 3 if n else 0.0
        return self.hours / fewest if fewest > 0 else None
