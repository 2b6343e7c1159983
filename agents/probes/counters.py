"""Counters that only grow, read from small files: what counts is how much they grew between two looks."""

import pathlib
from datetime import datetime


def read(path: pathlib.Path) -> str | None:
    """The file's text without white space around it; None where it is not there or cannot be read now."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # some drivers answer a counter that they do not have with EINVAL
        return None


def read_number(path: pathlib.Path) -> int | None:
    """The whole number in the file, or None."""
    text = read(path)
    return int(text) if text and text.isdecimal() else None


class Growth:
    """Remembers each counter's last value."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[datetime, int]] = {}

    def of(self, name: str, value: int | None, *, now: datetime) -> tuple[int, float] | None:
        """By how much the counter grew, and per minute; None at the first look and where it went back (a reset)."""
        if value is None:
            return None
        before = self._last.get(name)
        self._last[name] = now, value
        if before is None or value < before[1] or now <= before[0]:
            return None
        grown = value - before[1]
        return grown, grown * 60 / (now - before[0]).total_seconds()
