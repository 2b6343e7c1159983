"""Durations as policies write them: ``[<n>day][<n>h][<n>min]``, KCE's grammar.

At least one part, in that order, each unit once, ASCII digits, no sign, no space; ``""`` means no duration.
Source: Kingsoft Cloud's help page on KCE-GPU-Error-Rescue (2024-09-10); anything it leaves open is refused here.
"""

import re
from datetime import timedelta

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
_EXAMPLE = 'write it like "1day2h30min" or "20min"'


class DurationError(ValueError):
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
        raise DurationError(f'{_shorten(text)}: too long, write "{MAX_DURATION.days}day" or less')
    return duration


def render(duration: timedelta | None) -> str:
    """The shortest text for the duration, "" for None.

    Raises DurationError for a duration without a text: negative, over 3650 days, or not in whole minutes.
    """
    if duration is None:
        return ""
    minutes, rest = divmod(duration, timedelta(minutes=1))
    if rest or not timedelta(0) <= duration <= MAX_DURATION:
        raise DurationError(f"{duration}: a duration must be whole minutes, from 0 to {MAX_DURATION.days} days")
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = zip((days, hours, minutes), _UNITS, strict=True)
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0min"


def _refuse_characters(text: str) -> None:
    if any(character.isspace() for character in text):
        raise DurationError(f'"{_shorten(text)}": no spaces are allowed, {_EXAMPLE}')
    if text[0] in "+-":
        raise DurationError(f"{_shorten(text)}: no sign is allowed, a duration is never negative; {_EXAMPLE}")
    if any(character.isdigit() and not character.isascii() for character in text):
        raise DurationError(f"{_shorten(text)}: digits must be ASCII (0 to 9), {_EXAMPLE}")


def _parse_part(count: str, unit: str, *, before: list[str]) -> tuple[int, str]:
    """The number and unit of one part; ``before`` are the units to the left of it."""
    part = _shorten(count + unit)
    if not count:
        raise DurationError(f'{part}: a number is missing before "{_shorten(unit)}", {_EXAMPLE}')
    if not unit:
        raise DurationError(f'{part}: a unit is missing, write "{part}day", "{part}h" or "{part}min"')
    if unit in _SECOND_UNITS:
        raise DurationError(f"{part}: seconds are not supported, the smallest unit is min")
    if unit in _UNIT_ALIASES:
        raise DurationError(f'{part}: write "{_shorten(count)}{_UNIT_ALIASES[unit]}"')
    if unit not in _UNITS:
        raise DurationError(f'{part}: the unit "{_shorten(unit)}" is unknown, use "day", "h" or "min"')
    if unit in before:
        raise DurationError(f'{part}: "{unit}" appears twice, write each unit once')
    order = list(_UNITS)
    if before and order.index(unit) < order.index(before[-1]):
        raise DurationError(f'{part}: it must come before "{before[-1]}", the order is day, h, min')
    if len(count) > _MAX_DIGITS:
        raise DurationError(f'{part}: too long, write "{MAX_DURATION.days}day" or less')
    return int(count), unit


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
