"""Alerts of pagers: which alerts new events open and end, and the pager events of a delivery.

An alert is open from the event that opens it until the event that ends it. Its row is written and deleted in the
transaction that writes the notice, so that a crash neither loses an end nor sends anything twice.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import F
from django.utils.translation import gettext as _

from kcover.faults import catalog
from kcover.notify import events as core_events, pager
from kcover_portal.notify import queries
from kcover_portal.notify.models import Alert, Channel, Delivery, Notice
from kcover_portal.notify.senders import PagerEvent
from kcover_portal.notify.services import open_alerts, render
from kcover_portal.notify.services.new_event import NewEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingNotice:
    """A notice to write: an event under its key.

    For a pager, it also says what the event does to which alert on which page. ``body``: the alert for an Alertmanager.
    """

    key: str
    event: core_events.Event
    action: str = ""
    alert: str = ""
    page: str = ""
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def ends(self) -> bool:
        """True if the notice ends or acknowledges an alert that was sent; such a notice is never omitted."""
        return self.action in (pager.ACKNOWLEDGE, pager.RESOLVE)


def changes(channel: Channel, found: Sequence[NewEvent], *, wanted: Collection[str]) -> list[PendingNotice]:
    """The notices for the pager: alerts that a route opens there, and changes of the alerts that are open there."""
    names = {move.alert for event in found for move in event.moves}
    open_there = set(channel.alerts.filter(name__in=names).values_list("name", flat=True))
    chosen = []
    for event in found:
        for place, move in enumerate(event.moves):
            opens = move.action == pager.TRIGGER
            if event.key not in wanted if opens else move.alert not in open_there:
                continue
            if opens:
                open_there.add(move.alert)
            elif move.action == pager.RESOLVE:
                open_there.discard(move.alert)
            key = f"{event.key} {place}" if place else event.key
            chosen.append(PendingNotice(key=key, event=event.event, action=move.action, alert=move.alert))
    return chosen


def with_pages(
    delivery: Delivery, channel: Channel, chosen: Sequence[PendingNotice], *, now: datetime
) -> list[PendingNotice]:
    """The notices with their pages; opens and ends the alerts, as part of the caller's transaction.

    Similar alerts of one delivery share a page, so that a storm wakes a person once. A repeated alert goes to the page
    that is open, and a page ends with the last of its alerts. A page is named after the notice that opened it, so a
    name is never reused: an end that arrives late does not end a page that was opened since.
    """
    if channel.kind == Channel.Kind.ALERTMANAGER:
        return _with_bodies(channel, chosen, now=now)
    pages = dict(channel.alerts.filter(name__in={notice.alert for notice in chosen}).values_list("name", "page"))
    shared = _open_pages(delivery)
    result = []
    for notice in chosen:
        if notice.action == pager.TRIGGER:
            alike = core_events.group_key(notice.event)
            page = pages.get(notice.alert) or shared.setdefault(alike, notice.key)
            if notice.alert not in pages and notice.alert != notice.key:
                Alert.objects.create(channel=channel, name=notice.alert, page=page, opened_at=now)
                pages[notice.alert] = page
            result.append(replace(notice, page=page))
            continue
        page = pages.get(notice.alert, "")
        if not page:
            continue  # the notice that would have opened it was omitted
        if notice.action == pager.RESOLVE:
            channel.alerts.filter(name=notice.alert).delete()
            del pages[notice.alert]
            if channel.alerts.filter(page=page).exists():
                # This ends only a part of the page: it is recorded, and the pager has nothing to do.
                result.append(replace(notice, action="", page=""))
                continue
        # The page has ended or was acknowledged, so a new alert on it would not wake anybody.
        shared = {alike: other for alike, other in shared.items() if other != page}
        result.append(replace(notice, page=page))
    return result


def _with_bodies(channel: Channel, chosen: Sequence[PendingNotice], *, now: datetime) -> list[PendingNotice]:
    """As ``with_pages``, for an Alertmanager: it groups by itself, so that each alert is a page of its own.

    An alert has its row also if no event ends it, because it is sent again. An acknowledgement is only recorded: to
    silence an alert is left to people.
    """
    known = {row.name: row for row in channel.alerts.filter(name__in={notice.alert for notice in chosen})}
    result = []
    for notice in chosen:
        row = known.get(notice.alert)
        if notice.action == pager.TRIGGER and row is None:
            body = open_alerts.body(notice.event, channel, page=notice.key)
            given = {"name": notice.alert, "page": notice.key, "opened_at": now, "body": body}
            known[notice.alert] = row = Alert.objects.create(channel=channel, **given)
        if row is None:
            continue  # the notice that would have opened it was omitted
        if notice.action == pager.ACKNOWLEDGE:
            result.append(replace(notice, action=""))
            continue
        if notice.action == pager.RESOLVE:
            known.pop(notice.alert).delete()
        result.append(replace(notice, page=row.page, body=row.body))
    return result


def _open_pages(delivery: Delivery) -> dict[tuple[object, ...], str]:
    """The pages that the delivery opens and nobody has acknowledged, by the grouping key of their events."""
    changed = delivery.notices.filter(action__in=(pager.ACKNOWLEDGE, pager.RESOLVE)).values("page")
    opened = delivery.notices.filter(action=pager.TRIGGER, key=F("page")).exclude(page__in=changed)
    return {core_events.group_key(queries.event_of(row)): row.page for row in opened.order_by("pk")}


def pager_events(delivery: Delivery, channel: Channel, *, now: datetime) -> tuple[PagerEvent, ...]:
    """The events of a delivery that the pager has not accepted yet, oldest first.

    Call it with the channel's language active. An alert that ended before it could be sent pages nobody: only its end
    is sent.
    """
    if delivery.test:
        return (_test(delivery, channel, now=now),)
    rows = list(delivery.notices.exclude(action="").order_by("pk"))
    over = _last_ends(channel, rows)
    groups: dict[tuple[str, str], list[Notice]] = {}
    for row in rows:
        late = row.action != pager.RESOLVE and over.get(row.page, 0) > row.pk
        if row.accepted_at is None and not late:
            groups.setdefault((row.page, row.action), []).append(row)
    return tuple(_event(delivery, group, now=now) for group in groups.values())


def _last_ends(channel: Channel, rows: Sequence[Notice]) -> dict[str, int]:
    """The last end of each of these pages among all notices of the channel."""
    ends = Notice.objects.filter(channel=channel, page__in={row.page for row in rows}, action=pager.RESOLVE)
    return dict(ends.order_by("pk").values_list("page", "pk"))


def _event(delivery: Delivery, rows: Sequence[Notice], *, now: datetime) -> PagerEvent:
    batch = list(dict.fromkeys(queries.event_of(row) for row in rows))
    lines = core_events.lines(batch)
    first, line = lines[0].first, lines[0]
    details = {
        "channel": delivery.name,
        "cluster": first.cluster,
        "nodes": ", ".join(dict.fromkeys(event.node for event in batch if event.node)),
        "why": render.why(first),
    }
    if delivery.omitted:
        details["left out"] = str(delivery.omitted)
    return PagerEvent(
        action=rows[0].action,
        page=rows[0].page,
        summary=render.text(line),
        severity=max(map(pager.severity, batch), key=catalog.SEVERITIES.index),
        kind=first.kind,
        lines=tuple(render.with_link(event) for event in lines),
        source=first.node or first.cluster,
        component=first.what,
        cluster=first.cluster,
        link=render.link(line) or settings.KCOVER_PUBLIC_URL,
        at=first.at,
        details={name: value for name, value in details.items() if value},
        notices=tuple(row.pk for row in rows),
        body=_body(rows[0], now=now),
    )


def _body(row: Notice, *, now: datetime) -> dict[str, Any]:
    """The alert for an Alertmanager."""
    if not row.body:
        return {}
    over = row.action == pager.RESOLVE
    return open_alerts.ended(row.body, at=row.at) if over else open_alerts.firing(row.body, now=now)


def _test(delivery: Delivery, channel: Channel, *, now: datetime) -> PagerEvent:
    """A test alert with the lowest severity. The person who reads it resolves it; at an Alertmanager it ends itself."""
    text = _("This is a test message. The channel %(name)s works.") % {"name": channel.name}
    return PagerEvent(
        action=pager.TRIGGER,
        page=f"test-{delivery.key}",
        summary=f"{_('A test')}: {text}",
        severity="info",
        kind="test",
        lines=(text,),
        link=settings.KCOVER_PUBLIC_URL,
        at=delivery.opened_at,
        body=open_alerts.firing(open_alerts.test_body(delivery, channel), now=now),
    )
