"""The arguments and progress of a step in the reader's language, and durations in words."""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html
from django.utils.translation import gettext as _, ngettext

from kcover import actions, reasons
from kcover.values import masked_addresses
from kcover_portal.lib import localization
from kcover_portal.rescue.models import Step


def duration(span: timedelta) -> str:
    """A duration in its two largest units. It is never negative, because clocks may disagree."""
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
    return " ".join(unit for amount, unit in parts[largest : largest + 2] if amount)


def of(step: Step) -> list[tuple[str, Any]]:
    """The arguments and progress of a step, as pairs of a title and a value: the fields that its action shows."""
    facts: list[tuple[str, Any]] = []
    ends = deadline(step)
    if ends is not None:
        facts.append((_("Times out"), ends))
    spec = actions.ACTIONS.get(step.name)
    if spec is None:
        return facts
    for record, data in ((spec.args, step.args), (spec.progress, step.progress)):
        for name, field in actions.fields_shown(record):
            value = data.get(name)
            if value not in EMPTY and not (value == 0 and field.form == actions.ValueFormat.NUMBER):
                facts.append((_(field.title), RENDER[field.form](field, value)))
    return facts


def looks(step: Step, *, calls: int) -> list[tuple[str, str]]:
    """How often the portal looked at the step, apart from the ``calls`` that it made for it; [] for a single look.

    ``attempts`` counts each look: it is reserved with the claim, before anybody knows whether a call follows.
    """
    if step.attempts < 2:
        return []
    facts = [(_("Checked"), _times(step.attempts))]
    return [*facts, (_("Called the cluster"), _times(calls))] if calls else facts


def _times(number: int) -> str:
    return ngettext("%(n)d time", "%(n)d times", number) % {"n": number}


def deadline(step: Step) -> datetime | None:
    """Returns the time limit of a step under way; None if it has none."""
    if step.started_at is None or step.state not in ("running", "waiting") or step.name not in actions.ACTIONS:
        return None
    limit = step.args_as(step.spec.args).time_limit
    return None if limit is None else step.started_at + limit


def _names(value: Collection[str]) -> str:
    names = sorted(value)
    more = ngettext("and %(n)d more", "and %(n)d more", len(names) - MAX_NAMES_SHOWN) % {
        "n": len(names) - MAX_NAMES_SHOWN
    }
    return f"{len(names)}: " + ", ".join(names[:MAX_NAMES_SHOWN]) + (f" {more}" if len(names) > MAX_NAMES_SHOWN else "")


def _text(value: Any) -> Any:
    return localization.told(value) if isinstance(value, str) else value


def _budgets(value: Mapping[str, Collection[str]]) -> str:
    return "; ".join(
        f"{pod} ← {', '.join(budgets) or _('a disruption budget')}"
        for pod, budgets in sorted(value.items())[:MAX_NAMES_SHOWN]
    )


MAX_NAMES_SHOWN: Final = 6  # names in one value
EMPTY: Final[tuple[object, ...]] = (None, "", [], {})
RENDER: Final[dict[actions.ValueFormat, Callable[[actions.Presentation, Any], Any]]] = {
    actions.ValueFormat.TEXT: lambda _field, value: _text(masked_addresses.mask(value)),
    actions.ValueFormat.NUMBER: lambda _field, value: value,
    actions.ValueFormat.YES_NO: lambda _field, value: _("yes") if value else _("no"),
    actions.ValueFormat.SECONDS: lambda _field, value: duration(timedelta(seconds=value)),
    actions.ValueFormat.MOMENT: lambda _field, value: parse_datetime(value) or value,
    actions.ValueFormat.NAMES: lambda _field, value: _names(value),
    actions.ValueFormat.BUDGETS: lambda _field, value: _budgets(value),
    actions.ValueFormat.CHOICE: lambda field, value: _(field.choices[value]) if value in field.choices else value,
    actions.ValueFormat.REASON: lambda _field, value: localization.say(reasons.from_json(value)),
    actions.ValueFormat.VALIDATION: lambda _field, value: format_html(
        '<a href="{}">{}</a>', reverse("console:validation", args=[value]), value
    ),
    actions.ValueFormat.VALUES: lambda _field, value: ", ".join(value.values()),
}
