"""Wait times as policies write them: ``[<n>day][<n>h][<n>min]``, KCE's grammar.

At least one part, in that order, each unit once, ASCII digits, no sign, no space; ``""`` means that none is given.
Source: Kingsoft Cloud's help page on KCE-GPU-Error-Rescue (2024-09-10); what it leaves open is refused here.
"""

import re
from datetime import timedelta

MAX = timedelta(days=3650)

_PIECE = re.compile(r"([0-9]*)([^0-9]*)")
_UNITS = {"day": timedelta(days=1), "h": timedelta(hours=1), "min": timedelta(minutes=1)}
_MAX_DIGITS = 8
_SECONDS = ("s", "sec", "secs", "second", "seconds")
# What people write for a unit, and the unit they mean.
_MEANT = {
    **dict.fromkeys(("d", "D", "days", "Day", "Days", "天", "日"), "day"),
    **dict.fromkeys(("H", "hr", "hrs", "hour", "hours", "Hour", "Hours", "小时"), "h"),
    **dict.fromkeys(("m", "M", "mins", "minute", "minutes", "Min", "Minutes", "分", "分钟"), "min"),
}
_EXAMPLE = 'write it like "1day2h30min" or "20min"'


class WaitError(ValueError):
    """A wait time that is not understood; the message names the piece and says what to write instead."""


def parse(text: str) -> timedelta | None:
    """The wait that the text means, None for "". Raises WaitError."""
    if text == "":
        return None
    _refuse_characters(text)
    wait = timedelta()
    before: list[str] = []
    for piece in _PIECE.finditer(text):
        if not piece[0]:
            continue
        count, unit = _part(*piece.groups(), before=before)
        before.append(unit)
        wait += count * _UNITS[unit]
    if wait > MAX:
        raise WaitError(f'{_shown(text)}: too long, write "{MAX.days}day" or less')
    return wait


def render(wait: timedelta | None) -> str:
    """The shortest text that means the wait, "" for None. Raises WaitError for one that no text means: negative, longer
    than 3650 days or not of whole minutes."""
    if wait is None:
        return ""
    minutes, rest = divmod(wait, timedelta(minutes=1))
    if rest or not timedelta(0) <= wait <= MAX:
        raise WaitError(f"{wait}: a wait is made of whole minutes, from none to {MAX.days}day")
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = zip((days, hours, minutes), _UNITS, strict=True)
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0min"


def _refuse_characters(text: str) -> None:
    if any(character.isspace() for character in text):
        raise WaitError(f'"{_shown(text)}": no spaces are allowed, {_EXAMPLE}')
    if text[0] in "+-":
        raise WaitError(f"{_shown(text)}: no sign is allowed, a wait is never negative; {_EXAMPLE}")
    if any(character.isdigit() and not character.isascii() for character in text):
        raise WaitError(f"{_shown(text)}: digits must be ASCII (0 to 9), {_EXAMPLE}")


def _part(count: str, unit: str, *, before: list[str]) -> tuple[int, str]:
    """One number with its unit; ``before`` are the units to the left of it."""
    whole = _shown(count + unit)
    if not count:
        raise WaitError(f'{whole}: a number is missing before "{_shown(unit)}", {_EXAMPLE}')
    if not unit:
        raise WaitError(f'{whole}: a unit is missing, write "{whole}day", "{whole}h" or "{whole}min"')
    if unit in _SECONDS:
        raise WaitError(f"{whole}: seconds are not supported, the smallest unit is min")
    if unit in _MEANT:
        raise WaitError(f'{whole}: write "{_shown(count)}{_MEANT[unit]}"')
    if unit not in _UNITS:
        raise WaitError(f'{whole}: the unit "{_shown(unit)}" is unknown, use "day", "h" or "min"')
    if unit in before:
        raise WaitError(f'{whole}: "{unit}" is there twice, write each unit once')
    order = list(_UNITS)
    if before and order.index(unit) < order.index(before[-1]):
        raise WaitError(f'{whole}: it must come before "{before[-1]}", the order is day, h, min')
    if len(count) > _MAX_DIGITS:
        raise WaitError(f'{whole}: too long, write "{MAX.days}day" or less')
    return int(count), unit


def _shown(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
