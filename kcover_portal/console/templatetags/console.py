"""Tags of the console's templates: icons, states, times."""

import functools
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
from kcover.decisions import match
from kcover.values import durations, masked_addresses
from kcover_portal.console import action_labels, browsers, fault_names, part_names, presentation
from kcover_portal.console.reads import answers, entries, report_words, step_facts
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.ledger.models import Entry
from kcover_portal.lib import actor_names, localization
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.models import Decision, Rescue

register = template.Library()


@register.simple_tag
def icon(name: str, css: str = "") -> SafeString:
    """An icon of the sprite. It is hidden from screen readers, because text stands beside it."""
    return _icon(name, css)


@functools.lru_cache(maxsize=512)
def _icon(name: str, css: str) -> SafeString:
    """A page has fifty icons, of a hundred that there are; to build one takes as long as a small query."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true"><use href="{}#tabler-{}"></use></svg>',
        css,
        static("vendor/icons.svg"),
        name,
    )


@register.simple_tag
def state(table: str, name: str, css: str = "") -> SafeString:
    """A state as a badge; ``data-state`` identifies it for scripts and tests."""
    look = presentation.of(table, name)
    return format_html(
        '<span class="state tone-{} {}" data-state="{}:{}">{}<span>{}</span></span>',
        look.tone,
        css,
        table,
        name,
        icon(look.icon),
        look.label,
    )


@register.simple_tag
def ago(moment: datetime | None, fallback: str = "–") -> SafeString:
    """A time as "3 min ago". The script keeps it fresh and shows the absolute time on hover, in the reader's zone."""
    return _time(moment, "ago", fallback)


@register.simple_tag
def until(moment: datetime | None, fallback: str = "–") -> SafeString:
    """A future time as a countdown."""
    return _time(moment, "until", fallback)


@register.simple_tag
def at(moment: datetime | None, fallback: str = "–") -> SafeString:
    return _time(moment, "at", fallback)


@register.simple_tag
def day(moment: datetime) -> SafeString:
    """The date of a time, in the reader's zone."""
    return format_html('<time datetime="{}" data-time="day">{}</time>', moment.isoformat(), f"{moment:%m-%d}")


def _time(moment: datetime | None, shape: str, fallback: str) -> SafeString:
    if moment is None:
        return format_html("{}", fallback)
    utc = moment.astimezone(timezone.get_default_timezone())
    return format_html(
        '<time datetime="{}" data-time="{}">{}</time>', moment.isoformat(), shape, utc.strftime("%Y-%m-%d %H:%M:%S %Z")
    )


@register.filter
def span(seconds: float | None) -> str:
    """Seconds as a duration in words."""
    return "" if seconds is None else step_facts.duration(timedelta(seconds=seconds))


@register.simple_tag
def lasted(start: datetime | None, end: datetime | None) -> str:
    """The duration of something, or the time since its start."""
    return step_facts.duration((end or timezone.now()) - start) if start else ""


@register.simple_tag
def fault(kind: str, code: str) -> str:
    """A fault's name: Xid 79."""
    return fault_names.fault_name(kind, code)


@register.simple_tag
def fault_kind(kind: str) -> str:
    """The name of a kind of faults: Xid, Check."""
    return str(fault_names.KINDS.get(kind, kind))


@register.filter
def spelled(about: str) -> str:
    """A fault by kind and code as people write it: Xid 79 for ``xid 79``."""
    kind, space, code = about.partition(" ")
    return reasons.SPELLED.get(kind, kind) + space + code


@register.filter
def incident_name(incident: Incident) -> str:
    """The name of an incident's fault: Xid 79, Storm: Xid 79."""
    return fault_names.incident_name(incident)


@register.filter
def incident_meaning(incident: Incident) -> str:
    """What the code of an incident means; "" where the catalog has nothing."""
    return fault_names.incident_meaning(incident)


@register.filter
def rescued_fault(rescue: Rescue) -> str:
    """The name of the fault that the rescue is about; "" if it is not about a fault."""
    return fault_names.of_rescue(rescue)


@register.filter
def symptom(storm: Incident) -> str:
    """The symptom that the nodes of a storm share."""
    return fault_names.symptom(storm)


@register.simple_tag
def outcome(name: str) -> Any:
    return presentation.OUTCOMES.get(name, name)


@register.simple_tag
def progress(done: int, total: int, label: str = "") -> SafeString:
    """Finished steps as segments. Readable without colour, because each segment is filled or not."""
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
    cells = format_html_join("", '<i class="{}"></i>', (("bad" if device == "x" else "",) for device in devices))
    return format_html('<span class="gpus" role="img" aria-label="{}">{}</span>', label, cells)


@register.filter
def who(actor: str) -> str:
    """The name of an actor: ann for user:ann."""
    return actor_names.name(actor)


@register.filter
def browser(header: str) -> str:
    """The browser and the system that a User-Agent header names."""
    return browsers.name(header)


@register.filter
def under(counts: Mapping[str, Any], name: str) -> Any:
    """The value of a mapping under a variable name."""
    return counts.get(name)


@register.filter
def guard(name: str) -> action_labels.ActionLabel:
    return presentation.GUARDS.get(name) or action_labels.ActionLabel(name, "shield")


@register.filter
def verb(name: str) -> Any:
    """The label of an action: Cordon, Drain."""
    return action_labels.verb(name).label


@register.filter
def verb_is_grave(name: str) -> bool:
    """Returns whether the act ends work; its button is red."""
    return action_labels.verb(name).grave


@register.filter
def verb_icon(name: str) -> str:
    return action_labels.verb(name).icon


@register.filter
def verb_help(name: str) -> Any:
    return action_labels.verb(name).help


@register.filter
def step_title(name: str) -> str:
    return presentation.step_title(name)


@register.simple_tag
def action_setting(action: str, key: str, value: Any) -> SafeString:
    """A setting of a rule's action in words: at most 20 min for the waittime of a drain; else as the policy has it."""
    written = str(masked_addresses.mask(value))
    words = action_labels.setting(action, key, written)
    if not words:
        return format_html('<span class="quiet mono">{}={}</span>', key, written)
    try:
        length = durations.parse(written)
    except durations.DurationError:
        length = None
    return format_html(
        '<span class="quiet">{}</span>', words % {"value": step_facts.duration(length) if length else written}
    )


@register.filter
def action_title(name: str) -> str:
    return presentation.action_title(name)


@register.filter
def event_kind(kind: str) -> Any:
    return presentation.event_kind(kind)


@register.filter
def shown(value: Any) -> Any:
    """The value of a fact: a future time as a countdown, a past one as a time, anything else unchanged."""
    if not isinstance(value, datetime):
        return value
    return until(value) if value > timezone.now() else at(value)


@register.filter
def part_name(repair: Repair) -> str:
    """The part of a repair in words."""
    return part_names.name(repair.part)


@register.filter
def masked(data: Any) -> Any:
    """A text or JSON value whose addresses show no query and no user name."""
    return masked_addresses.mask(data)


@register.filter
def pretty(data: Any) -> str:
    """Plain JSON, indented."""
    return json.dumps(data, indent=2, ensure_ascii=False, sort_keys=True)


@register.filter
def cataloged(text: str) -> str:
    """A text of the fault catalog (``catalog.texts``) in the reader's language."""
    return _(text) if text else ""


@register.filter
def because(reason: Any) -> str:
    """A reason, or the JSON of one, in the reader's language; "" for none."""
    return localization.say(reason) if isinstance(reason, reasons.Reason) else localization.stored(reason or {})


@register.filter
def answer(decision: Decision) -> tuple[reasons.Reason, ...]:
    """What a decision answers, without the rules that it compared with the fault."""
    return answers.of(decision)


@register.filter
def tried_rules(decision: Decision) -> list[match.TriedRule]:
    """The rules that a decision compared with the fault."""
    return answers.tried(decision)


@register.filter
def rule_groups(rules: list[match.TriedRule]) -> list[answers.RuleGroup]:
    """Rules by their result, nearest first."""
    return answers.grouped(rules)


@register.filter
def named(values: Mapping[str, Any], name: str) -> Any:
    """The value of this name; None if there is none."""
    return values.get(name)


@register.filter
def message(row: Incident | Occurrence) -> str:
    """The message of an incident or occurrence: a sentence in the reader's language, or a log line as it is."""
    return fault_names.fault_message(row)


@register.filter
def act_title(entry: Entry) -> str:
    """The action of an audit entry, in words."""
    return entries.title(entry)


@register.filter
def is_by_link(entry: Entry) -> bool:
    """Returns whether an audit entry is an answer that a person gave by an approval link."""
    return entries.is_by_link(entry)


@register.filter
def act_reason(entry: Entry) -> str:
    """A person's own words, or why the portal acted."""
    return entries.why(entry)


@register.filter
def percent(share: float | None) -> str:
    """A share of 0 to 1 in per cent."""
    return report_words.percent(share)


@register.filter
def fault_cause(key: str) -> str:
    """The name of a fault such as "xid 79"."""
    return report_words.cause(key)


@register.filter
def hours(time: timedelta) -> str:
    """A time in hours."""
    return report_words.count(time / timedelta(hours=1))
