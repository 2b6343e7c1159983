"""Composing: the notices of a delivery in the channel's language, as people and as programs get them."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from kcover import notices
from kcover_portal.accounts.models import User
from kcover_portal.notify import queries
from kcover_portal.notify.models import Channel, Delivery, Route
from kcover_portal.notify.senders import Message
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.services import links, opening

VERSION: Final = 1
LINES: Final = 20  # of a message: whoever wants more looks at the page
LONGEST: Final = 400  # characters of a line
LINKS: Final = 5  # questions with a link of their own in one message

TITLES: Final = {
    "approval.waiting": gettext_lazy("Approval waiting"),
    "rescue.human": gettext_lazy("A rescue needs a person"),
    "rescue.failed": gettext_lazy("Rescue failed"),
    "storm.opened": gettext_lazy("Storm"),
    "breaker.tripped": gettext_lazy("Breaker tripped"),
    "automation.paused": gettext_lazy("Automation paused"),
    "rule.notify": gettext_lazy("Word of a rule"),
    "incident.opened": gettext_lazy("Incident opened"),
    "agent.silent": gettext_lazy("Agent silent"),
    "program.fault": gettext_lazy("A program's fault"),
    "rescue.opened": gettext_lazy("Rescue opened"),
    "approval.answered": gettext_lazy("Approval answered"),
    "automation.resumed": gettext_lazy("Automation goes on"),
    "rescue.healed": gettext_lazy("Node healed"),
    "rescue.ended": gettext_lazy("Rescue ended"),
    "incident.closed": gettext_lazy("Incident closed"),
    "agent.back": gettext_lazy("Agent reports again"),
}
SEVERITIES: Final = dict(Route.SEVERITIES)
# Where a happening is shown; the console stands above, so its addresses are written here, and a test opens them.
PAGES: Final = {
    "incident": "/incidents/{record}/",
    "rescue": "/rescues/{record}/",
    "approval": "/approvals/#question-{record}",
}
OF_INCIDENTS: Final = (
    "incident.opened",
    "incident.closed",
    "agent.silent",
    "agent.back",
    "program.fault",
    "storm.opened",
)


def compose(delivery: Delivery, channel: Channel, *, now: datetime) -> Message:
    """The message as it is kept and sent; links in a person's name come on top (``answers``)."""
    with translation.override(channel.language):
        if delivery.test:
            return _test(delivery, channel, now=now)
        happenings = queries.happenings(delivery)
        found = notices.lines(happenings)
        said = [say(line) for line in found[:LINES]]
        left = len(happenings) + delivery.left_out - sum(line.count for line in found[:LINES])
        if left:
            said.append(ngettext("and %(n)d more", "and %(n)d more", left) % {"n": left})
        return _message(delivery, channel, _subject(found, happenings), said, happenings, now=now)


def answers(delivery: Delivery, person: User, *, language: str) -> list[tuple[Rescue, str]]:
    """The questions among what is told that this person may answer, each with a line that has their link."""
    asked = [one.record for one in queries.happenings(delivery) if one.kind == "approval.waiting"]
    rescues = Rescue.objects.select_related("node", "cluster").filter(pk__in=[pk for pk in asked if pk is not None])
    found = []
    with translation.override(language):
        for rescue in rescues.order_by("pk")[:LINKS]:
            try:
                link = links.approve_link(rescue, person)
            except opening.Refused:
                continue  # answered meanwhile, or not theirs to answer: the page says so
            said = _("Answer about %(node)s as %(name)s: %(link)s")
            found.append((rescue, said % {"node": rescue.node.name, "name": person.get_username(), "link": link}))
    return found


def _test(delivery: Delivery, channel: Channel, *, now: datetime) -> Message:
    said = _("If you read this, the channel %(name)s works.") % {"name": channel.name}
    return _message(delivery, channel, _("A test"), [said], [], now=now)


def _message(
    delivery: Delivery,
    channel: Channel,
    subject: str,
    lines: Sequence[str],
    happenings: Sequence[notices.Happening],
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
        "happenings": [{**asdict(one), "at": one.at.isoformat()} for one in happenings],
        "left_out": delivery.left_out,
    }
    return Message(key=key, subject=subject, lines=tuple(lines), link=settings.KCOVER_PUBLIC_URL, document=document)


def _subject(found: Sequence[notices.Line], happenings: Sequence[notices.Happening]) -> str:
    """The most urgent line's head, and how much more there is."""
    if not found:
        return _("Nothing to tell")
    said = head(found[0])
    others = len(happenings) - found[0].count
    if others:
        said += " " + ngettext("(and %(n)d other)", "(and %(n)d others)", others) % {"n": others}
    return _plain(said, 200)


def say(line: notices.Line) -> str:
    """One line: what, where, why, and where to look."""
    said, where = words(line), address(line)
    return f"{said} {where}" if where else said


def words(line: notices.Line) -> str:
    """What, where and why."""
    first = line.first
    said = head(line)
    if first.because and (line.alone or first.kind == "rule.notify"):
        said += f" – {first.because}"
    return _plain(said, LONGEST)


def head(line: notices.Line) -> str:
    """What happened, and where."""
    first = line.first
    title = str(TITLES.get(first.kind, first.kind))
    if first.again:
        title += " " + _("(reminder)")
    if first.drill:
        title += " " + _("(drill)")
    severity = str(SEVERITIES.get(first.severity, first.severity)).lower()
    what = first.what + (f" ({severity})" if severity else "")
    where = ", ".join(line.nodes)
    if line.more:
        where += " " + ngettext("and %(n)d more node", "and %(n)d more nodes", line.more) % {"n": line.more}
    if first.nodes and not where:
        where = ngettext("%(n)d node", "%(n)d nodes", first.nodes) % {"n": first.nodes}
    place = " · ".join(part for part in (where, first.cluster) if part)
    return ": ".join(part for part in (title, what) if part) + (f" · {place}" if place else "")


def address(line: notices.Line) -> str:
    """Where the line's one record is shown; of many nothing, because the list would not be these."""
    if not settings.KCOVER_PUBLIC_URL or not line.alone or line.first.record is None:
        return ""
    kind = line.first.kind
    page = "incident" if kind in OF_INCIDENTS else "approval" if kind == "approval.waiting" else "rescue"
    return settings.KCOVER_PUBLIC_URL + PAGES[page].format(record=line.first.record)


def _plain(text: str, most: int) -> str:
    """Without line breaks and control characters, so that nothing that is quoted looks like a line of ours."""
    words = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return words if len(words) <= most else f"{words[: most - 1]}…"
