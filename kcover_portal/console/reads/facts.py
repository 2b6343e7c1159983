"""What a step was told and remembers, in words; and spans of time as people say them."""

from datetime import datetime, timedelta
from typing import Any

from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from kcover_portal.rescue.models import Step


def duration(span: timedelta) -> str:
    """A span in its two largest units; never negative, for clocks may disagree."""
    seconds = max(0, round(span.total_seconds()))
    if seconds == 0:
        return _("under 1 s")
    days, hours, minutes = seconds // 86400, seconds % 86400 // 3600, seconds % 3600 // 60
    parts = [
        (days, _("%(n)d d") % {"n": days}),
        (hours, _("%(n)d h") % {"n": hours}),
        (minutes, _("%(n)d min") % {"n": minutes}),
        (seconds % 60, _("%(n)d s") % {"n": seconds % 60}),
    ]
    largest = next(place for place, (amount, __) in enumerate(parts) if amount)
    return " ".join(words for amount, words in parts[largest : largest + 2] if amount)


def of(step: Step) -> list[tuple[str, Any]]:
    """The step's arguments and what it remembers, in words; a key that is not known is shown as it is."""
    shown: list[tuple[str, Any]] = []
    ends = deadline(step)
    if ends is not None:
        shown.append((_("Time is up"), ends))
    for key, value in {**step.args, **step.progress}.items():
        known = FACTS.get(key)
        words = known(value) if known else (key.replace("_", " "), value)
        if words is not None and words[1] not in (None, "", [], {}):
            shown.append(words)
    return shown


def deadline(step: Step) -> datetime | None:
    """When a step under way runs out of its own time, if it has any."""
    seconds = step.args.get("seconds")
    if step.started_at is None or seconds is None or step.state not in ("running", "waiting"):
        return None
    return step.started_at + timedelta(seconds=seconds)


def _pods(value: Any) -> str:
    names = sorted(value)
    more = ngettext("and %(n)d more", "and %(n)d more", len(names) - 6) % {"n": len(names) - 6}
    return ", ".join(names[:6]) + (f" {more}" if len(names) > 6 else "")


def _blocked(value: dict[str, list[str]]) -> str:
    return "; ".join(
        f"{pod} ← {', '.join(budgets) or _('a disruption budget')}" for pod, budgets in sorted(value.items())[:6]
    )


FACTS: dict[str, Any] = {
    "seconds": lambda value: (_("Drains for at most"), duration(timedelta(seconds=value))),
    "on_timeout": lambda value: (_("When time is up"), ON_TIMEOUT.get(value, lambda: value)()),
    "wait_seconds": lambda value: (_("Waits before the reboot"), duration(timedelta(seconds=value))),
    "agent": lambda value: (_("Agent's word needed"), _("yes") if value else _("no")),
    "foreign": lambda value: (_("Lifts another's cordon"), _("yes") if value else _("no")),
    "message": lambda value: (_("Message"), value),
    "key": lambda value: (_("Taint key"), value),
    "value": lambda value: (_("Taint value"), value),
    "effect": lambda value: (_("Taint effect"), value),
    "evicted": lambda value: (_("Pods evicted"), f"{len(value)}: {_pods(value)}" if value else ""),
    "left": lambda value: (_("Pods left"), f"{len(value)}: {_pods(value)}" if value else ""),
    "blocked": lambda value: (_("Blocked by a budget"), _blocked(value)),
    "refusals": lambda value: (_("Rounds refused"), value or ""),
    "boot_id": lambda value: (_("Boot id"), value),
    "driver": lambda value: (_("Reboots by"), DRIVERS.get(value, lambda: value)()),
    "asked_at": lambda value: (_("Asked at"), parse_datetime(value) or value),
    "asked": lambda value: (_("Asked for by"), value),
    "jobs": lambda value: None,  # named in "asked"
    "withdrawal": lambda value: None,  # said in the step's own sentence
}
ON_TIMEOUT: dict[str, Any] = {
    "hold": lambda: _("hold for a person"),
    "proceed": lambda: _("go on without them"),
    "force": lambda: _("delete them by force"),
}
DRIVERS: dict[str, Any] = {"agent": lambda: _("the node's agent"), "job": lambda: _("a job on the node")}
