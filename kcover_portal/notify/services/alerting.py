"""Alerting: which alerts of a pager a look at the news opens and ends, and the events that a delivery has for it.

An alert is open from the happening that opened it until what ends it was found; its row is written and removed in the
transaction that writes the notice, so that a crash neither forgets an end nor tells of anything twice.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.conf import settings
from django.db.models import F
from django.utils.translation import gettext as _

from kcover import catalog, notices, paging
from kcover_portal.notify import queries
from kcover_portal.notify.models import Alert, Channel, Delivery, Notice
from kcover_portal.notify.senders import Event
from kcover_portal.notify.services import composing
from kcover_portal.notify.services.reading import Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A notice to be: a happening under its key and, for a pager, what it does to which alert, and under which page."""

    key: str
    happening: notices.Happening
    action: str = ""
    alert: str = ""
    page: str = ""

    @property
    def ends(self) -> bool:
        """Whether it is the end of something that was told: that is never left out."""
        return self.action in (paging.ACKNOWLEDGE, paging.RESOLVE)


def told(channel: Channel, found: Sequence[Found], *, wanted: Collection[str]) -> list[Told]:
    """What of the news is the pager's: alerts that it is asked to open, and changes of those that are open there."""
    names = {move.alert for one in found for move in one.moves}
    open_there = set(channel.alerts.filter(name__in=names).values_list("name", flat=True))
    chosen = []
    for one in found:
        for place, move in enumerate(one.moves):
            opens = move.action == paging.TRIGGER
            if one.key not in wanted if opens else move.alert not in open_there:
                continue
            if opens:
                open_there.add(move.alert)
            elif move.action == paging.RESOLVE:
                open_there.discard(move.alert)
            key = f"{one.key} {place}" if place else one.key
            chosen.append(Told(key=key, happening=one.happening, action=move.action, alert=move.alert))
    return chosen


def placed(delivery: Delivery, channel: Channel, chosen: Sequence[Told], *, now: datetime) -> list[Told]:
    """The same with their pages; alerts are opened and ended by it, as part of the caller's transaction.

    Alike ones of one delivery share a page: a storm wakes once. What is told again goes to the page that is open, and a
    page is over when the last of its alerts is. A page is named after the notice that opened it, so that no name comes
    twice: an end that arrives late ends what it was meant for, and nothing that was opened since.
    """
    pages = dict(channel.alerts.filter(name__in={one.alert for one in chosen}).values_list("name", "page"))
    shared = _shared(delivery)
    result = []
    for one in chosen:
        if one.action == paging.TRIGGER:
            alike = notices.alike(one.happening)
            page = pages.get(one.alert) or shared.setdefault(alike, one.key)
            if one.alert not in pages and one.alert != one.key:
                Alert.objects.create(channel=channel, name=one.alert, page=page, opened_at=now)
                pages[one.alert] = page
            result.append(replace(one, page=page))
            continue
        page = pages.get(one.alert, "")
        if not page:
            continue  # what would have opened it was left out
        if one.action == paging.RESOLVE:
            channel.alerts.filter(name=one.alert).delete()
            del pages[one.alert]
            if channel.alerts.filter(page=page).exists():
                # A part of the page only: noted, so that the log says so, and nothing for the pager to do.
                result.append(replace(one, action="", page=""))
                continue
        # Over, or somebody is at it: it would wake nobody for what comes now.
        shared = {alike: other for alike, other in shared.items() if other != page}
        result.append(replace(one, page=page))
    return result


def _shared(delivery: Delivery) -> dict[tuple[object, ...], str]:
    """The pages that the delivery opens and nobody is at, by what those have in common that share one."""
    changed = delivery.notices.filter(action__in=(paging.ACKNOWLEDGE, paging.RESOLVE)).values("page")
    opened = delivery.notices.filter(action=paging.TRIGGER, key=F("page")).exclude(page__in=changed)
    return {notices.alike(queries.happening(row)): row.page for row in opened.order_by("pk")}


def events(delivery: Delivery, channel: Channel) -> tuple[Event, ...]:
    """The events of a delivery that the pager did not take yet, in the order in which things happened.

    To be called in the channel's language. What was over before it could be told wakes nobody: only its end is sent.
    """
    if delivery.test:
        return (_test(delivery, channel),)
    rows = list(delivery.notices.exclude(action="").order_by("pk"))
    over = _over(channel, rows)
    groups: dict[tuple[str, str], list[Notice]] = {}
    for row in rows:
        late = row.action != paging.RESOLVE and over.get(row.page, 0) > row.pk
        if row.told_at is None and not late:
            groups.setdefault((row.page, row.action), []).append(row)
    return tuple(_event(delivery, group) for group in groups.values())


def _over(channel: Channel, rows: Sequence[Notice]) -> dict[str, int]:
    """The last end of each of these pages that the channel's notices know, in whichever delivery."""
    ends = Notice.objects.filter(channel=channel, page__in={row.page for row in rows}, action=paging.RESOLVE)
    return dict(ends.order_by("pk").values_list("page", "pk"))


def _event(delivery: Delivery, rows: Sequence[Notice]) -> Event:
    happenings = list(dict.fromkeys(queries.happening(row) for row in rows))
    said = notices.lines(happenings)
    first, line = said[0].first, said[0]
    details = {
        "channel": delivery.name,
        "cluster": first.cluster,
        "nodes": ", ".join(dict.fromkeys(one.node for one in happenings if one.node)),
        "why": first.because,
    }
    if delivery.left_out:
        details["left out"] = str(delivery.left_out)
    return Event(
        action=rows[0].action,
        page=rows[0].page,
        summary=composing.words(line),
        severity=max(map(paging.severity, happenings), key=catalog.SEVERITIES.index),
        kind=first.kind,
        lines=tuple(composing.say(one) for one in said),
        source=first.node or first.cluster,
        component=first.what,
        cluster=first.cluster,
        link=composing.address(line) or settings.KCOVER_PUBLIC_URL,
        at=first.at,
        details={name: value for name, value in details.items() if value},
        notices=tuple(row.pk for row in rows),
    )


def _test(delivery: Delivery, channel: Channel) -> Event:
    """Wakes as an alert does, as the least of them, and is left to whoever reads it."""
    said = _("If you read this, the channel %(name)s works.") % {"name": channel.name}
    return Event(
        action=paging.TRIGGER,
        page=f"test-{delivery.key}",
        summary=f"{_('A test')}: {said}",
        severity="info",
        kind="test",
        lines=(said,),
        link=settings.KCOVER_PUBLIC_URL,
        at=delivery.opened_at,
    )
