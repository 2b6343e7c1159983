"""How long the reports of a run are collected, as people and kcover's values file write it."""

import re
from datetime import timedelta

from kcover import reasons
from kcover.values.quote import short_repr

MIN_DEADLINE, MAX_DEADLINE = timedelta(minutes=1), timedelta(days=1)
_TEXT = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})(?:min|m))?(?:([0-9]{1,6})s)?")


class DeadlineInvalid(reasons.ExplainedError, ValueError):
    """A value that is not a time to collect reports."""


def parse_deadline(value: object) -> timedelta:
    """The time in ``value``: seconds as a number, or text like 30m, 1h30m, 90s (as kcover writes it) and 30min.

    Raises DeadlineInvalid, also outside of one minute to one day.
    """
    found = _seconds(value)
    if found is None or not MIN_DEADLINE <= found <= MAX_DEADLINE:
        raise DeadlineInvalid(reasons.of("preflight_deadline_invalid", value=short_repr(value)))
    return found


def _seconds(value: object) -> timedelta | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return timedelta(seconds=value) if abs(value) <= MAX_DEADLINE.total_seconds() else None
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text.isascii() and text.isdecimal() and len(text) <= 6:
        return timedelta(seconds=int(text))
    match = _TEXT.fullmatch(text)
    if match is None or not text:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)
