"""Collect events: new events, and the messages of rules, become notices in the deliveries that are batching.

A row's lock admits one collector at a time. Its reads, its writes and its cursors are one transaction.
"""

import uuid
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F

from kcover import reasons
from kcover.actions import notify
from kcover.notify import events, pager
from kcover_portal.lib import doorbell
from kcover_portal.lib.prepared import Prepared, any_row
from kcover_portal.notify import queries
from kcover_portal.notify.models import Channel, Cursor, Delivery, Notice
from kcover_portal.notify.services import alerts, event_sources, open_needs
from kcover_portal.notify.services.alerts import PendingNotice
from kcover_portal.notify.services.new_event import NewEvent
from kcover_portal.rescue.control import notify_steps
from kcover_portal.rescue.models import Step

LOCK = "collect"
MAX_NOTICES = 500  # per delivery; further events are only counted
MAX_STEPS = 200  # in one transaction

# A rescue waits for the message of its rule, so these bound the channel's own times.
RULE_BATCHING, RULE_INTERVAL = timedelta(seconds=2), timedelta(seconds=10)


def collect(*, now: datetime) -> int:
    """Reads the new events. Returns how many of them were added to a channel."""
    needs_changed = open_needs.has_changes(now=now)
    if not (needs_changed or event_sources.has_news()):
        return 0
    with transaction.atomic():
        row = lock(now=now)
        if row is None:
            return 0
        found = [
            *event_sources.read_new(first=row.position == 0, now=now),
            *(open_needs.read_new(now=now) if needs_changed else ()),  # again, under the lock
        ]
        if row.position == 0:
            Cursor.objects.filter(name=LOCK).update(position=1, at=now)
        return _hand_out(found, now=now)


def _hand_out(found: Sequence[NewEvent], *, now: datetime) -> int:
    if not found:
        return 0
    wanted: dict[int, tuple[Channel, set[str]]] = {pager.pk: (pager, set()) for pager in queries.pagers()}
    for row, route in queries.routes():
        _, chosen = wanted.setdefault(row.channel.pk, (row.channel, set()))
        chosen.update(pager.key for pager in found if not pager.late and events.matches(route, pager.event))
    for channel in queries.owner_channels({new.event.channel for new in found} - {""}):
        _, chosen = wanted.setdefault(channel.pk, (channel, set()))
        chosen.update(new.key for new in found if not new.late and new.event.channel == channel.name)
    for channel, chosen in wanted.values():
        add_notices(channel, found, wanted=chosen, now=now)
    return len({key for _, chosen in wanted.values() for key in chosen})


def collect_steps(*, now: datetime) -> int:
    """Adds the messages of rules that rescues wait for.

    Returns how many. A message without a channel is settled at once.
    """
    if not _STEPS_WAIT():
        return 0
    with transaction.atomic():
        if lock(now=now) is None:
            return 0
        steps = list(notify_steps.waiting_steps()[:MAX_STEPS])
        known = queries.steps_collected(steps)
        fresh = [step for step in steps if queries.step_key(step) not in known]
        for step in fresh:
            _collect_step(step, now=now)
    return len(fresh)


_STEPS_WAIT = any_row(lambda: [notify_steps.waiting_steps()])


def lock(*, now: datetime) -> Cursor | None:
    """Makes the caller the only collector until its transaction ends. Returns None if another worker collects."""
    row = _LOCK.first()
    if row is None and not Cursor.objects.filter(name=LOCK).exists():
        Cursor.objects.get_or_create(name=LOCK, defaults={"at": now})
        row = _LOCK.first()
    return row


_LOCK = Prepared(lambda: Cursor.objects.select_for_update(skip_locked=True).filter(name=LOCK))


def _collect_step(step: Step, *, now: datetime) -> None:
    rescue = step.rescue
    args = step.args_as(notify.Args)
    key = queries.step_key(step)
    event = events.Event(
        kind="rule.notify",
        at=now,
        cluster=rescue.cluster.name,
        node=rescue.node.name,
        what=rescue.code,
        record=rescue.pk,
        because=reasons.of("quoted_text", text=args.message) if args.message else None,
    )
    found = NewEvent(key, event, pager.alert_changes(event, key=key))
    named = args.channel
    if named:
        channels = list(Channel.objects.filter(name=named, enabled=True))
        why = reasons.of("notify_no_channel", channel=named)
    else:
        rows = {row.channel.pk: row.channel for row, route in queries.routes() if events.matches(route, found.event)}
        channels, why = list(rows.values()), reasons.of("notify_no_route")
    for channel in channels:
        add_notices(channel, [found], wanted={found.key}, step=step, now=now)
    if not channels:
        notify_steps.settle_step(step.pk, because=why, now=now)


def add_notices(
    channel: Channel, found: Sequence[NewEvent], *, wanted: Collection[str], now: datetime, step: Step | None = None
) -> None:
    """Adds the wanted events that the channel has not had yet to its batching delivery.

    ``wanted``: keys. A pager also gets the ends of its alerts, wanted or not. Ends and reminders are never omitted.
    """
    if channel.pages:
        notices = alerts.changes(channel, found, wanted=wanted)
    else:
        notices = [PendingNotice(key=notice.key, event=notice.event) for notice in found if notice.key in wanted]
    known = set(
        Notice.objects.filter(channel=channel, key__in=[notice.key for notice in notices]).values_list("key", flat=True)
    )
    fresh = [notice for notice in notices if notice.key not in known]
    if not fresh:
        return
    urgent = any(notice.event.kind in events.URGENT_KINDS for notice in fresh)
    delivery = _batching(channel, rule=step is not None, urgent=urgent, now=now)
    news = [notice for notice in fresh if not (notice.ends or notice.event.again)]
    room = max(0, MAX_NOTICES - delivery.notices.count()) if step is None else len(news)
    left = {notice.key for notice in news[room:]}
    kept = [notice for notice in fresh if notice.key not in left]
    rows = alerts.with_pages(delivery, channel, kept, now=now) if channel.pages else kept
    Notice.objects.bulk_create(_rows(delivery, channel, rows, step=step))
    if left:
        Delivery.objects.filter(pk=delivery.pk).update(omitted=F("omitted") + len(left))
    doorbell.publish("notify", delivery.pk)


def _batching(channel: Channel, *, rule: bool, urgent: bool, now: datetime) -> Delivery:
    """The channel's batching delivery, locked, so that nobody sends it before this transaction has ended.

    ``rule``: a rescue waits for it. ``urgent``: it does not wait for the end of quiet hours or for the digest.
    """
    batching, interval = timedelta(seconds=channel.batching), timedelta(seconds=channel.min_interval)
    if rule:
        batching, interval = min(batching, RULE_BATCHING), min(interval, RULE_INTERVAL)
    due = now + batching if channel.tried_at is None else max(now + batching, channel.tried_at + interval)
    due = channel.schedule.send_at(due, urgent=urgent)
    delivery = Delivery.objects.select_for_update().filter(channel=channel, batching=True).first()
    if delivery is None:
        return Delivery.objects.create(
            channel=channel, name=channel.name, batching=True, key=uuid.uuid4(), opened_at=now, due_at=due
        )
    if delivery.due_at is None or due < delivery.due_at:
        Delivery.objects.filter(pk=delivery.pk).update(due_at=due)
    return delivery


def _rows(
    delivery: Delivery, channel: Channel, notices: Iterable[PendingNotice], *, step: Step | None
) -> Iterable[Notice]:
    for notice in notices:
        event = notice.event
        yield Notice(
            delivery=delivery,
            channel=channel,
            key=notice.key,
            kind=event.kind,
            cluster=event.cluster,
            node=event.node,
            what=event.what[:100],
            severity=event.severity,
            record=event.record,
            because=event.because.to_json() if event.because is not None else {},
            drill=event.drill,
            nodes=event.nodes,
            at=event.at,
            step=step,
            action=notice.action,
            page=notice.page,
            body=notice.body,
            again=event.again,
        )
