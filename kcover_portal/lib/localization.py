"""Reasons in the reader's language."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext

from kcover import reasons


def say(reason: reasons.Reason) -> str:
    """One reason in the reader's language."""
    return reason.say(gettext)


def sentence(weighed: Iterable[reasons.Reason]) -> str:
    """Several reasons in a row, in the reader's language."""
    return say(reasons.both(*weighed))


def stored(because: Mapping[str, Any]) -> str:
    """The reason in a JSON column of a row, in the reader's language; "" if it has none."""
    return reasons.text(because, gettext)
