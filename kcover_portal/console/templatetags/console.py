"""Tags of the console's templates: icons, states, times."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from kcover import reasons
from kcover_portal.console import looks, wording
from kcover_portal.console.reads import approvals, facts, timeline

register = template.Library()


@register.simple_tag
def icon(name: str, css: str = "") -> SafeString:
    """A picture from the sprite; always beside words, so hidden from screen readers."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true"><use href="{}#tabler-{}"></use></svg>',
        css,
        static("vendor/icons.svg"),
        name,
    )


@register.simple_tag
def state(table: str, name: str, css: str = "") -> SafeString:
    """A state as a badge: icon, word and tone."""
    look = looks.of(table, name)
    return format_html(
        '<span class="state tone-{} {}">{}<span>{}</span></span>', look.tone, css, icon(look.icon), look.label
    )


@register.simple_tag
def ago(moment: datetime | None, fallback: str = "–") -> SafeString:
    """A moment as "3 min ago"; the script keeps it fresh and shows the absolute time on hover, in the reader's zone."""
    return _time(moment, "ago", fallback)


@register.simple_tag
def until(moment: datetime | None, fallback: str = "–") -> SafeString:
    """A moment to come as a countdown."""
    return _time(moment, "until", fallback)


@register.simple_tag
def at(moment: datetime | None, fallback: str = "–") -> SafeString:
    """A moment as date and time in the reader's zone."""
    return _time(moment, "at", fallback)


def _time(moment: datetime | None, shape: str, fallback: str) -> SafeString:
    if moment is None:
        return format_html("{}", fallback)
    utc = moment.astimezone(timezone.get_default_timezone())
    return format_html(
        '<time datetime="{}" data-time="{}">{}</time>', moment.isoformat(), shape, utc.strftime("%Y-%m-%d %H:%M:%S %Z")
    )


@register.filter
def span(seconds: float | None) -> str:
    """Seconds as people say them."""
    return "" if seconds is None else facts.duration(timedelta(seconds=seconds))


@register.simple_tag
def lasted(start: datetime | None, end: datetime | None) -> str:
    """How long something took, or has taken so far."""
    return facts.duration((end or timezone.now()) - start) if start else ""


@register.simple_tag
def fault(kind: str, code: str) -> str:
    """A fault's name: Xid 79."""
    return timeline.fault_name(kind, code)


@register.simple_tag
def outcome(name: str) -> Any:
    """A rescue's outcome in words."""
    return looks.OUTCOMES.get(name, name)


@register.simple_tag
def progress(done: int, total: int, label: str = "") -> SafeString:
    """Finished steps as segments: readable without colour, for each segment is filled or not."""
    return format_html(
        '<span class="segments" role="img" aria-label="{}">{}</span>',
        label or _("%(done)d of %(total)d steps done") % {"done": done, "total": total},
        format_html_join("", '<i class="{}"></i>', (("on" if n < done else "",) for n in range(total))),
    )


@register.simple_tag
def gpu_strip(devices: str) -> SafeString:
    """A node's GPUs as small cells; a faulty one is crossed out."""
    bad = devices.count("x")
    label = _("%(n)d GPUs, %(bad)d with a fault") % {"n": len(devices), "bad": bad}
    cells = format_html_join("", '<i class="{}"></i>', (("bad" if one == "x" else "",) for one in devices))
    return format_html('<span class="gpus" role="img" aria-label="{}">{}</span>', label, cells)


@register.filter
def who(actor: str) -> str:
    """Who acted, as people say it: ann, and not user:ann."""
    return approvals.name(actor)


@register.filter
def under(counts: Mapping[str, Any], name: str) -> Any:
    """What a mapping has under a name that a variable holds."""
    return counts.get(name)


@register.filter
def guard(name: str) -> looks.Verb:
    """What a guard is called, its picture, and what it does in a sentence."""
    return looks.GUARDS.get(name) or looks.Verb(name, "shield")


@register.filter
def verb(name: str) -> Any:
    """What a button says: Cordon, Drain."""
    return looks.verb(name).label


@register.filter
def verb_icon(name: str) -> str:
    """The picture of a button's verb."""
    return looks.verb(name).icon


@register.filter
def verb_help(name: str) -> Any:
    """What the verb does, in a sentence."""
    return looks.verb(name).help


@register.filter
def step_title(name: str) -> Any:
    """What people call a step of a plan."""
    return looks.STEP_TITLES.get(name, name)


@register.filter
def happening(kind: str) -> Any:
    """What people call a kind of happening."""
    return looks.happening(kind)


@register.filter
def shown(value: Any) -> Any:
    """A fact's value: a moment to come as a countdown, one that passed as a time, everything else as it is."""
    if not isinstance(value, datetime):
        return value
    return until(value) if value > timezone.now() else at(value)


@register.filter
def pretty(data: Any) -> str:
    """Plain JSON, indented."""
    return json.dumps(data, indent=2, ensure_ascii=False, sort_keys=True)


@register.filter
def because(reason: Any) -> str:
    """A reason, or what was kept of one, in the reader's language."""
    return wording.say(reason if isinstance(reason, reasons.Reason) else reasons.from_json(reason))


@register.filter
def gist(data: dict[str, Any]) -> str:
    """What a ledger entry's data comes down to: the reason given, or why it came so."""
    said = data.get("reason") or data.get("because") or data.get("error") or ""
    return "; ".join(map(str, said)) if isinstance(said, list) else str(said)
