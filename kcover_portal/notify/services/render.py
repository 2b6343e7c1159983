"""Render the notices of a delivery in the channel's language, for people and for programs."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.utils import translation
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from kcover import reasons
from kcover.notify import events
from kcover_portal.lib import localization
from kcover_portal.notify import queries
from kcover_portal.notify.models import Channel, Delivery, Route
from kcover_portal.notify.senders import Message
from kcover_portal.rescue.control import approval_links
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.models import Rescue

VERSION: Final = 1
MAX_LINES: Final = 20  # of a message; the page shows the rest
MAX_LINE: Final = 400  # characters
MAX_LINKS: Final = 5  # links to requests in one message

TITLES: Final = {
    "approval.waiting": gettext_lazy("Approval waiting"),
    "rescue.human": gettext_lazy("A rescue needs attention"),
    "rescue.failed": gettext_lazy("Rescue failed"),
    "job.human": gettext_lazy("A training job needs attention"),
    "ledger.diverged": gettext_lazy("Audit log differs from its anchor"),
    "storm.opened": gettext_lazy("Storm"),
    "breaker.tripped": gettext_lazy("Breaker tripped"),
    "automation.paused": gettext_lazy("Automation paused"),
    "watch.failing": gettext_lazy("Watch disconnected"),
    "source.failing": gettext_lazy("Source failing"),
    "repair.overdue": gettext_lazy("A repair needs attention"),
    "rule.notify": gettext_lazy("Message from a rule"),
    "part.flagged": gettext_lazy("A part should be looked at"),
    "incident.opened": gettext_lazy("Incident opened"),
    "agent.silent": gettext_lazy("Agent silent"),
    "preflight.expired": gettext_lazy("Preflight expired"),
    "program.fault": gettext_lazy("A program's fault"),
    "job.moving": gettext_lazy("A job is about to move"),
    "rescue.opened": gettext_lazy("Rescue opened"),
    "approval.answered": gettext_lazy("Approval answered"),
    "automation.resumed": gettext_lazy("Automation resumed"),
    "rescue.healed": gettext_lazy("Node healed"),
    "rescue.ended": gettext_lazy("Rescue ended"),
    "job.ended": gettext_lazy("Order about a training job ended"),
    "job.moved": gettext_lazy("A job has moved"),
    "incident.closed": gettext_lazy("Incident closed"),
    "agent.back": gettext_lazy("Agent reports again"),
    "watch.cleared": gettext_lazy("Watch failure ended"),
    "source.cleared": gettext_lazy("Source failure ended"),
    "repair.cleared": gettext_lazy("A repair no longer needs attention"),
}
SEVERITIES: Final = dict(Route.SEVERITIES)
# The page of each record. The console is a higher layer, so its paths are repeated here; a test opens them.
PAGES: Final = {
    "incident": "/incidents/{record}/",
    "rescue": "/rescues/{record}/",
    "approval": "/approvals/#question-{record}",
    "preflight": "/preflight/{record}/",
    "job": "/jobs/",
    "watch": "/nodes/",
    "source": "/sources/",
    "repair": "/repairs/{record}/",
    "part": "/parts/{record}/",
}
OF_INCIDENTS: Final = (
    "incident.opened",
    "incident.closed",
    "agent.silent",
    "agent.back",
    "program.fault",
    "storm.opened",
)

OTHER_PAGES: Final = {
    "approval.waiting": "approval",
    "preflight.expired": "preflight",
    "job.human": "job",
    "job.ended": "job",
    "watch.failing": "watch",
    "watch.cleared": "watch",
    "source.failing": "source",
    "source.cleared": "source",
    "repair.overdue": "repair",
    "repair.cleared": "repair",
    "part.flagged": "part",
}


def message(delivery: Delivery, channel: Channel, *, now: datetime) -> Message:
    """The message as it is stored and sent. Links that answer in a person's name are added to it (``answer_links``)."""
    with translation.override(channel.language):
        if delivery.test:
            return _test(delivery, channel, now=now)
        batch = queries.events_of(delivery)
        found = events.lines(batch)
        lines = [with_link(line) for line in found[:MAX_LINES]]
        left = len(batch) + delivery.omitted - sum(line.count for line in found[:MAX_LINES])
        if left:
            lines.append(ngettext("and %(n)d more", "and %(n)d more", left) % {"n": left})
        return _message(delivery, channel, _subject(found, batch), lines, batch, now=now)


def answer_links(delivery: Delivery, channel: Channel) -> list[tuple[Rescue, str]]:
    """The requests of the delivery that the channel's person may answer, each with a line that contains their link.

    None if whoever chose the channel's person or address could not make such a link.
    """
    person = channel.person
    if person is None or not person.is_active:
        return []
    asked = [event.record for event in queries.events_of(delivery) if event.kind == "approval.waiting"]
    rescues = Rescue.objects.select_related("node", "cluster").filter(pk__in=[pk for pk in asked if pk is not None])
    found = []
    with translation.override(channel.language):
        for rescue in rescues.order_by("pk")[:MAX_LINKS]:
            try:
                by = channel.addressed_by or channel.created_by
                link = approval_links.channel_link(rescue, person, addressed_by=by, person_by=channel.person_by or by)
            except create.RescueRefused:
                continue  # answered meanwhile, not theirs to answer, or led where nobody chose who may make links
            said = _("Answer about %(node)s as %(name)s: %(link)s")
            found.append((rescue, said % {"node": rescue.node.name, "name": person.get_username(), "link": link}))
    return found


def _test(delivery: Delivery, channel: Channel, *, now: datetime) -> Message:
    text = _("This is a test message. The channel %(name)s works.") % {"name": channel.name}
    line = f"{text} {settings.KCOVER_PUBLIC_URL}/notifications/" if settings.KCOVER_PUBLIC_URL else text
    return _message(delivery, channel, _("A test"), [line], [], now=now)


def _message(
    delivery: Delivery,
    channel: Channel,
    subject: str,
    lines: Sequence[str],
    batch: Sequence[events.Event],
    *,
    now: datetime,
) -> Message:
    key = str(delivery.key)
    document: dict[str, Any] = {
        "version": VERSION,
        "delivery": key,
        "sent_at": now.isoformat(),
        "channel": channel.name,
        "test": delivery.test,
        "subject": subject,
        "lines": list(lines),
        "events": [_event(event) for event in batch],
        "omitted": delivery.omitted,
    }
    return Message(key=key, subject=subject, lines=tuple(lines), link=settings.KCOVER_PUBLIC_URL, document=document)


def _event(event: events.Event) -> dict[str, Any]:
    """The event for programs: ``because`` is a sentence, ``because_reason`` its code."""
    reason = event.because.to_json() if event.because is not None else None
    return {**asdict(event), "at": event.at.isoformat(), "because": why(event), "because_reason": reason}


def _subject(found: Sequence[events.Line], batch: Sequence[events.Event]) -> str:
    """The head of the most urgent line, and the number of other events."""
    if not found:
        return _("Nothing to tell")
    subject = head(found[0])
    others = len(batch) - found[0].count
    if others:
        subject += " " + ngettext("(and %(n)d other)", "(and %(n)d others)", others) % {"n": others}
    return _plain(subject, 200)


def with_link(line: events.Line) -> str:
    """One line with its link: what, where and why."""
    line_text, where = text(line), link(line)
    return f"{line_text} {where}" if where else line_text


def text(line: events.Line) -> str:
    """One line: what, where and why."""
    first = line.first
    sentence = head(line)
    if first.because is not None and (line.is_single or first.kind == "rule.notify"):
        sentence += f" – {why(first)}"
    return _plain(sentence, MAX_LINE)


def why(event: events.Event) -> str:
    """The reason why the event happened, in the active language; "" if it is unknown."""
    return localization.say(event.because) if event.because is not None else ""


def head(line: events.Line) -> str:
    """The event and its place, in words."""
    first = line.first
    title = str(TITLES.get(first.kind, first.kind))
    if first.again:
        title += " " + _("(reminder)")
    if first.drill:
        title += " " + _("(drill)")
    what = reasons.spelled(first.what)
    if severity := str(SEVERITIES.get(first.severity, first.severity)).lower():
        what = _("%(what)s (%(severity)s)") % {"what": what, "severity": severity}
    where = ", ".join(line.nodes)
    if line.more:
        where += " " + ngettext("and %(n)d more node", "and %(n)d more nodes", line.more) % {"n": line.more}
    if first.nodes and not where:
        where = ngettext("%(n)d node", "%(n)d nodes", first.nodes) % {"n": first.nodes}
    place = " · ".join(part for part in (where, first.cluster) if part)
    about = _("%(title)s: %(what)s") % {"title": title, "what": what} if what else title
    return about + (f" · {place}" if place else "")


def link(line: events.Line) -> str:
    """The link to the page of the line's record; "" for a line of several events."""
    if not settings.KCOVER_PUBLIC_URL or not line.is_single or line.first.record is None:
        return ""
    kind = line.first.kind
    page = "incident" if kind in OF_INCIDENTS else OTHER_PAGES.get(kind, "rescue")
    return settings.KCOVER_PUBLIC_URL + PAGES[page].format(record=line.first.record)


def _plain(text: str, most: int) -> str:
    """The text without line breaks and control characters, so that quoted text cannot pass for a line of the portal."""
    plain = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"
