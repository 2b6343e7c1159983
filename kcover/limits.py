"""How many nodes at most: a plain count or a percentage of the nodes that it is about (``3`` or ``"10%"``)."""

import re
from dataclasses import dataclass

from kcover.quoting import shown

_PERCENT = re.compile(r"([0-9]{1,3})%")
_EXAMPLE = 'write a whole number from 1, or a percentage such as "10%"'


class LimitError(ValueError):
    """A limit that is not understood; the message says what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Either ``count`` or ``percent`` is set, never both."""

    count: int | None = None
    percent: int | None = None

    def __post_init__(self) -> None:
        if (self.count is None) == (self.percent is None):
            raise ValueError("a limit is a count or a percentage")

    def of(self, total: int) -> int:
        """How many of ``total`` nodes: a percentage is rounded down, to at least one; of none it is none."""
        if self.count is not None:
            return self.count
        return max(1, total * (self.percent or 0) // 100) if total > 0 else 0

    def __str__(self) -> str:
        return f"{self.percent}%" if self.count is None else str(self.count)


def parse(value: object) -> Limit:
    """The limit that a document's value means; raises LimitError."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1_000_000:
        return Limit(count=value)
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found and 1 <= int(found[1]) <= 100:
        return Limit(percent=int(found[1]))
    if isinstance(value, str) and re.fullmatch(r"[1-9][0-9]{0,5}", value):
        raise LimitError(f"write {value} without quotes: a count is a whole number")
    raise LimitError(f"{shown(value)} is no limit: {_EXAMPLE}")


def render(limit: Limit) -> int | str:
    """What ``parse`` reads as this limit."""
    return str(limit) if limit.count is None else limit.count
