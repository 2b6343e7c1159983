"""Durations: ``[<n>day][<n>h][<n>min]``, KCE's grammar, and the same as people write it.

``parse`` reads KCE's: at least one part, in that order, each unit once, ASCII digits, no sign, no space; ``""`` means
no duration. Source: Kingsoft Cloud's help page on KCE-GPU-Error-Rescue (2024-09-10); what it leaves open is refused.

``read`` also knows other spellings of the units, and spaces, commas or "and" between the parts: ``1 h 30 m``. Rules and
forms take these; ``kce_text`` says the same in KCE's grammar.
"""

import re
from collections.abc import Mapping
from datetime import timedelta

from kcover import reasons

MAX_DURATION = timedelta(days=3650)

_PART = re.compile(r"([0-9]*)([^0-9]*)")
_UNITS = {"day": timedelta(days=1), "h": timedelta(hours=1), "min": timedelta(minutes=1)}
_ALL_UNITS = {**_UNITS, "s": timedelta(seconds=1)}
_MAX_DIGITS = 8
_SECOND_UNITS = ("s", "sec", "secs", "second", "seconds")
_MAX_WRITTEN = 80  # characters of a text with gaps
_GAP = re.compile(r"(?<=[^\W\d_])(?:\s*[,，和]\s*|\s+and\s+|\s+)(?=[0-9])")
_MONTH = re.compile(r"[0-9] *M(?![^\W\d_])")
_WRITTEN_PART = re.compile(r"([0-9]+) *([^\W\d_]+)")
# Common spellings of a unit, and the unit they stand for.
_UNIT_ALIASES = {
    **dict.fromkeys(("d", "D", "days", "Day", "Days", "天", "日"), "day"),
    **dict.fromkeys(("H", "hr", "hrs", "hour", "hours", "Hour", "Hours", "小时"), "h"),
    **dict.fromkeys(("m", "M", "mins", "minute", "minutes", "Min", "Minutes", "分", "分钟"), "min"),
}


_SPELLINGS = {
    **{spelling.lower(): unit for spelling, unit in _UNIT_ALIASES.items()},
    **dict.fromkeys((*_SECOND_UNITS, "秒"), "s"),
}


class DurationError(reasons.ExplainedError, ValueError):
    """The text is not a valid duration; the message names the part and says what to write instead."""


def parse(text: str) -> timedelta | None:
    """The duration that the text stands for, None for "". Raises DurationError."""
    return _parse(text, units=_UNITS) if text else None


def read(text: str, *, seconds: bool = False) -> timedelta | None:
    """The duration as people write it, None for "". ``seconds``: they are a unit as well. Raises DurationError."""
    if text == "":
        return None
    units = _ALL_UNITS if seconds else _UNITS
    try:
        return _parse(text, units=units)
    except DurationError as refusal:
        plain = _plain(text) if len(text) <= _MAX_WRITTEN else ""
        if plain in ("", text):
            raise
        try:
            return _parse(plain, units=units)
        except DurationError as error:
            raise error from refusal


def kce_text(text: str) -> str:
    """The duration in KCE's grammar; a text in this grammar stays as it is. Raises DurationError."""
    length = read(text)
    try:
        parse(text)
    except DurationError:
        return render(length)
    return text


def _plain(text: str) -> str:
    """The text with KCE's units, without gaps; "" with a capital M, which may be meant as a month."""
    if _MONTH.search(text):
        return ""
    joined = _GAP.sub("", text.strip().lower())
    return _WRITTEN_PART.sub(lambda part: part[1] + _SPELLINGS.get(part[2], part[2]), joined)


def _parse(text: str, *, units: Mapping[str, timedelta]) -> timedelta:
    _refuse_characters(text)
    duration = timedelta()
    before: list[str] = []
    for piece in _PART.finditer(text):
        if not piece[0]:
            continue
        count, unit = _parse_part(*piece.groups(), before=before, units=units)
        before.append(unit)
        duration += count * units[unit]
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


def _parse_part(count: str, unit: str, *, before: list[str], units: Mapping[str, timedelta]) -> tuple[int, str]:
    """The number and unit of one part; ``before`` are the units to the left of it."""
    part = _shorten(count + unit)
    if not count:
        raise DurationError(reasons.of("duration_no_number", text=part, unit=_shorten(unit)))
    if not unit:
        raise DurationError(reasons.of("duration_no_unit", text=part))
    if unit in _SECOND_UNITS and unit not in units:
        raise DurationError(reasons.of("duration_seconds", text=part))
    if unit in _UNIT_ALIASES:
        raise DurationError(reasons.of("duration_alias", text=part, instead=f"{_shorten(count)}{_UNIT_ALIASES[unit]}"))
    if unit not in units:
        raise DurationError(reasons.of("duration_unit", text=part, unit=_shorten(unit)))
    if unit in before:
        raise DurationError(reasons.of("duration_unit_twice", text=part, unit=unit))
    order = list(units)
    if before and order.index(unit) < order.index(before[-1]):
        raise DurationError(reasons.of("duration_order", text=part, unit=before[-1]))
    if len(count) > _MAX_DIGITS:
        raise DurationError(reasons.of("duration_long", text=part, days=MAX_DURATION.days))
    return int(count), unit


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
