"""Counters that only grow, read from small files. Only their growth between two reads matters."""

import pathlib
from datetime import datetime


def read(path: pathlib.Path) -> str | None:
    """The text of the file, stripped. None if it is missing or cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # some drivers return EINVAL for a counter that they do not have
        return None


def read_number(path: pathlib.Path) -> int | None:
    """The integer in the file, or None."""
    text = read(path)
    return int(text) if text and text.isdecimal() else None


class Growth:
    """Remembers the last value of each counter."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[datetime, int]] = {}

    def of(self, name: str, value: int | None, *, now: datetime) -> tuple[int, float] | None:
        """The growth of the counter, in total and per minute. None at the first read and after a reset."""
        if value is None:
            return None
        before = self._last.get(name)
        self._last[name] = now, value
        if before is None or value < before[1] or now <= before[0]:
            return None
        grown = value - before[1]
        return grown, grown * 60 / (now - before[0]).total_seconds()
