"""Durations as policies write them: ``[<n>day][<n>h][<n>min]``, KCE's grammar.

At least one part, in that order, each unit once, ASCII digits, no sign, no space; ``""`` means no duration.
Source: Kingsoft Cloud's help page on KCE-GPU-Error-Rescue (2024-09-10); anything it leaves open is refused here.
"""

import re
from datetime import timedelta

from kcover import reasons

MAX_DURATION = timedelta(days=3650)

_PART = re.compile(r"([0-9]*)([^0-9]*)")
_UNITS = {"day": timedelta(days=1), "h": timedelta(hours=1), "min": timedelta(minutes=1)}
_MAX_DIGITS = 8
_SECOND_UNITS = ("s", "sec", "secs", "second", "seconds")
# Common spellings of a unit, and the unit they stand for.
_UNIT_ALIASES = {
    **dict.fromkeys(("d", "D", "days", "Day", "Days", "天", "日"), "day"),
    **dict.fromkeys(("H", "hr", "hrs", "hour", "hours", "Hour", "Hours", "小时"), "h"),
    **dict.fromkeys(("m", "M", "mins", "minute", "minutes", "Min", "Minutes", "分", "分钟"), "min"),
}


class DurationError(reasons.ExplainedError, ValueError):
    """The text is not a valid duration; the message names the part and says what to write instead."""


def parse(text: str) -> timedelta | None:
    """The duration that the text stands for, None for "". Raises DurationError."""
    if text == "":
        return None
    _refuse_characters(text)
    duration = timedelta()
    before: list[str] = []
    for piece in _PART.finditer(text):
        if not piece[0]:
            continue
        count, unit = _parse_part(*piece.groups(), before=before)
        before.append(unit)
        duration += count * _UNITS[unit]
    if duration > MAX_DURATION:
        raise DurationError(reasons.of("duration_long", text=_shorten(text), days=MAX_DURATION.days))
    return duration


def render(duration: timedelta | None) -> str:
    """The shortest text for the duration, "" for None.

    Raises DurationError for a duration without a text: negative, over 3650 days, or not in whole minutes.
    """
    if duration is None:
        return ""
    minutes, remainder = divmod(duration, timedelta(minutes=1))
    if remainder or not timedelta(0) <= duration <= MAX_DURATION:
        raise DurationError(reasons.of("duration_not_minutes", duration=str(duration), days=MAX_DURATION.days))
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = zip((days, hours, minutes), _UNITS, strict=True)
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0min"


def _refuse_characters(text: str) -> None:
    if any(character.isspace() for character in text):
        raise DurationError(reasons.of("duration_spaces", text=_shorten(text)))
    if text[0] in "+-":
        raise DurationError(reasons.of("duration_sign", text=_shorten(text)))
    if any(character.isdigit() and not character.isascii() for character in text):
        raise DurationError(reasons.of("duration_digits", text=_shorten(text)))


def _parse_part(count: str, unit: str, *, before: list[str]) -> tuple[int, str]:
    """The number and unit of one part; ``before`` are the units to the left of it."""
    part = _shorten(count + unit)
    if not count:
        raise DurationError(reasons.of("duration_no_number", text=part, unit=_shorten(unit)))
    if not unit:
        raise DurationError(reasons.of("duration_no_unit", text=part))
    if unit in _SECOND_UNITS:
        raise DurationError(reasons.of("duration_seconds", text=part))
    if unit in _UNIT_ALIASES:
        raise DurationError(reasons.of("duration_alias", text=part, instead=f"{_shorten(count)}{_UNIT_ALIASES[unit]}"))
    if unit not in _UNITS:
        raise DurationError(reasons.of("duration_unit", text=part, unit=_shorten(unit)))
    if unit in before:
        raise DurationError(reasons.of("duration_unit_twice", text=part, unit=unit))
    order = list(_UNITS)
    if before and order.index(unit) < order.index(before[-1]):
        raise DurationError(reasons.of("duration_order", text=part, unit=before[-1]))
    if len(count) > _MAX_DIGITS:
        raise DurationError(reasons.of("duration_long", text=part, days=MAX_DURATION.days))
    return int(count), unit


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
