"""Reasons in the reader's language."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from django.utils.translation import gettext

from kcover import actions, reasons
from kcover.sentences import shipped_policies
from kcover_portal.lib import actor_names


def say(reason: reasons.Reason) -> str:
    """One reason in the reader's language."""
    return _titled(reason).say(gettext)


def sentence(weighed: Iterable[reasons.Reason]) -> str:
    """Several reasons in a row, in the reader's language."""
    return say(reasons.both(*weighed))


def stored(because: Mapping[str, Any]) -> str:
    """The reason in a JSON column of a row, in the reader's language; "" if it has none."""
    reason = reasons.kept(because)
    return say(reason) if reason is not None else ""


def _titled(reason: reasons.Reason) -> reasons.Reason:
    """The reason, with the titles of steps in place of their names."""
    return replace(reason, params=tuple((name, _value(name, value)) for name, value in reason.params))


def _value(name: str, value: reasons.Value) -> reasons.Value:
    if isinstance(value, reasons.Reason):
        return _titled(value)
    if isinstance(value, tuple):
        return tuple(map(_titled, value))
    if name in reasons.PEOPLE:
        return ", ".join(map(actor_names.name, str(value).split(", ")))
    spec = actions.ACTIONS.get(str(value)) if name == "step" else None
    if spec is not None:
        return gettext(spec.title)
    return told(value) if isinstance(value, str) else value


def told(text: str) -> str:
    """What a policy tells people: in the reader's language if it is as shipped, else as its author wrote it."""
    return gettext(text) if text in shipped_policies.TEXTS else text
