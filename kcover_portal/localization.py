"""Reasons in the reader's language."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from django.utils.translation import gettext, gettext_noop

from kcover import reasons

UNITS = {
    "d": gettext_noop("%(n)d d"),
    "h": gettext_noop("%(n)d h"),
    "min": gettext_noop("%(n)d min"),
    "s": gettext_noop("%(n)d s"),
}
SPAN = re.compile(r"(\d+) (d|h|min|s)")  # a duration as ``reasons.span`` writes it


def say(reason: reasons.Reason) -> str:
    """One reason in the reader's language, durations included."""
    return _localised(reason).say(gettext)


def sentence(weighed: Iterable[reasons.Reason]) -> str:
    """Several reasons in a row, in the reader's language."""
    return say(reasons.both(*weighed))


def stored(because: Mapping[str, Any]) -> str:
    """The reason in a JSON column of a row, in the reader's language; "" if it has none."""
    kept = reasons.kept(because)
    return say(kept) if kept is not None else ""


def _localised(reason: reasons.Reason) -> reasons.Reason:
    return replace(reason, params=tuple((name, _value(value)) for name, value in reason.params))


def _value(value: reasons.Value) -> reasons.Value:
    if isinstance(value, tuple):
        return tuple(_localised(part) for part in value)
    if isinstance(value, reasons.Reason):
        return _localised(value)
    written = SPAN.fullmatch(value) if isinstance(value, str) else None
    return gettext(UNITS[written[2]]) % {"n": int(written[1])} if written else value
