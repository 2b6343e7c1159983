"""A maximum number of nodes: a count or a percentage of the nodes it applies to (``3`` or ``"10%"``)."""

import re
from dataclasses import dataclass

from kcover import reasons
from kcover.values.quote import short_repr

_PERCENT = re.compile(r"([0-9]{1,3})%")


class LimitError(reasons.ExplainedError, ValueError):
    """The value is not a valid limit; the message says what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A count or a percentage: exactly one of the two is set."""

    count: int | None = None
    percent: int | None = None

    def __post_init__(self) -> None:
        if (self.count is None) == (self.percent is None):
            raise ValueError("a limit is a count or a percentage")

    def of(self, total: int) -> int:
        """The limit for ``total`` nodes. A percentage is rounded down, to at least 1; it is 0 if ``total`` is 0."""
        if self.count is not None:
            return self.count
        return max(1, total * (self.percent or 0) // 100) if total > 0 else 0

    def __str__(self) -> str:
        return f"{self.percent}%" if self.count is None else str(self.count)


def parse(value: object) -> Limit:
    """The limit that the value of a document stands for. Raises LimitError."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1_000_000:
        return Limit(count=value)
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if percent and 1 <= int(percent[1]) <= 100:
        return Limit(percent=int(percent[1]))
    if isinstance(value, str) and re.fullmatch(r"[1-9][0-9]{0,5}", value):
        raise LimitError(reasons.of("limit_quoted", value=value))
    raise LimitError(reasons.of("limit_invalid", value=short_repr(value)))


def render(limit: Limit) -> int | str:
    """The value that ``parse`` reads as this limit."""
    return str(limit) if limit.count is None else limit.count
