"""Collecting: what came about becomes notices in the deliveries that gather, and so do the words of rules.

One collector at a time, by a row's lock; what it reads, what it writes and how far it came are one transaction.
"""

import uuid
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F

from kcover import notices, paging
from kcover_portal import doorbell
from kcover_portal.notify import queries
from kcover_portal.notify.models import Channel, Cursor, Delivery, Notice
from kcover_portal.notify.services import alerting, reading
from kcover_portal.notify.services.alerting import Told
from kcover_portal.notify.services.reading import Found
from kcover_portal.rescue.models import Step
from kcover_portal.rescue.services import telling

LOCK = "collect"
KEPT = 500  # happenings that one delivery keeps; of more it knows how many
STEPS_AT_ONE_TIME = 200

# A rescue waits for the word of its rule, so that goes sooner: these bound what a channel's own times say.
RULES_GATHER, RULES_SPACING = timedelta(seconds=2), timedelta(seconds=10)


def collect(*, now: datetime) -> int:
    """Reads on from where the last look ended; returns how many happenings found a channel."""
    if not reading.news():
        return 0
    with transaction.atomic():
        row = lock(now=now)
        if row is None:
            return 0
        found = reading.look(first=row.position == 0, now=now)
        if row.position == 0:
            Cursor.objects.filter(name=LOCK).update(position=1, at=now)
        return _hand_out(found, now=now)


def _hand_out(found: Sequence[Found], *, now: datetime) -> int:
    if not found:
        return 0
    wanted: dict[int, tuple[Channel, set[str]]] = {one.pk: (one, set()) for one in queries.pagers()}
    for row, route in queries.routes():
        _, chosen = wanted.setdefault(row.channel.pk, (row.channel, set()))
        chosen.update(one.key for one in found if not one.late and notices.wanted(route, one.happening))
    for channel, chosen in wanted.values():
        add(channel, found, wanted=chosen, now=now)
    return len({key for _, chosen in wanted.values() for key in chosen})


def take_up(*, now: datetime) -> int:
    """Hands out the words of rules that rescues wait with; returns how many. What nobody can be told is settled."""
    if not telling.asking().exists():
        return 0
    with transaction.atomic():
        if lock(now=now) is None:
            return 0
        steps = list(telling.asking()[:STEPS_AT_ONE_TIME])
        known = queries.taken_up(steps)
        fresh = [step for step in steps if queries.step_key(step) not in known]
        for step in fresh:
            _take_up(step, now=now)
    return len(fresh)


def lock(*, now: datetime) -> Cursor | None:
    """Makes the caller the only collector until its transaction ends; None where another worker is at it."""
    Cursor.objects.get_or_create(name=LOCK, defaults={"at": now})
    return Cursor.objects.select_for_update(skip_locked=True).filter(name=LOCK).first()


def _take_up(step: Step, *, now: datetime) -> None:
    rescue = step.rescue
    key = queries.step_key(step)
    happening = notices.Happening(
        kind="rule.notify",
        at=now,
        cluster=rescue.cluster.name,
        node=rescue.node.name,
        what=rescue.code,
        record=rescue.pk,
        because=step.args.get("message", ""),
    )
    found = Found(key, happening, paging.moves(happening, key=key))
    named = step.args.get("channel")
    if named:
        channels = list(Channel.objects.filter(name=named, enabled=True))
        why = f"nobody was told: there is no channel {named} that is switched on"
    else:
        rows = {
            row.channel.pk: row.channel for row, route in queries.routes() if notices.wanted(route, found.happening)
        }
        channels, why = list(rows.values()), "nobody was told: no route asks for the words of rules"
    for channel in channels:
        add(channel, [found], wanted={found.key}, step=step, now=now)
    if not channels:
        telling.told(step.pk, said=why, now=now)


def add(
    channel: Channel, found: Sequence[Found], *, wanted: Collection[str], now: datetime, step: Step | None = None
) -> None:
    """Puts what the channel wants and was not told of into the delivery that gathers for it.

    ``wanted``: keys. A pager gets the ends of its alerts as well, wanted or not. No end and no reminder is left out.
    """
    if channel.pages:
        told = alerting.told(channel, found, wanted=wanted)
    else:
        told = [Told(key=one.key, happening=one.happening) for one in found if one.key in wanted]
    known = set(Notice.objects.filter(channel=channel, key__in=[one.key for one in told]).values_list("key", flat=True))
    fresh = [one for one in told if one.key not in known]
    if not fresh:
        return
    delivery = _gathering(channel, urgent=step is not None, now=now)
    news = [one for one in fresh if not (one.ends or one.happening.again)]
    room = max(0, KEPT - delivery.notices.count()) if step is None else len(news)
    left = {one.key for one in news[room:]}
    kept = [one for one in fresh if one.key not in left]
    rows = alerting.placed(delivery, channel, kept, now=now) if channel.pages else kept
    Notice.objects.bulk_create(_rows(delivery, channel, rows, step=step))
    if left:
        Delivery.objects.filter(pk=delivery.pk).update(left_out=F("left_out") + len(left))
    doorbell.tell("notify", delivery.pk)


def _gathering(channel: Channel, *, urgent: bool, now: datetime) -> Delivery:
    """The delivery that gathers for the channel, locked, so that nobody sends it before this transaction has ended."""
    gather, spacing = timedelta(seconds=channel.gather), timedelta(seconds=channel.spacing)
    if urgent:
        gather, spacing = min(gather, RULES_GATHER), min(spacing, RULES_SPACING)
    due = now + gather if channel.tried_at is None else max(now + gather, channel.tried_at + spacing)
    delivery = Delivery.objects.select_for_update().filter(channel=channel, gathers=True).first()
    if delivery is None:
        return Delivery.objects.create(
            channel=channel, name=channel.name, gathers=True, key=uuid.uuid4(), opened_at=now, due_at=due
        )
    if delivery.due_at is None or due < delivery.due_at:
        Delivery.objects.filter(pk=delivery.pk).update(due_at=due)
    return delivery


def _rows(delivery: Delivery, channel: Channel, told: Iterable[Told], *, step: Step | None) -> Iterable[Notice]:
    for one in told:
        happening = one.happening
        yield Notice(
            delivery=delivery,
            channel=channel,
            key=one.key,
            kind=happening.kind,
            cluster=happening.cluster,
            node=happening.node,
            what=happening.what[:100],
            severity=happening.severity,
            record=happening.record,
            because=happening.because[:1000],
            drill=happening.drill,
            nodes=happening.nodes,
            at=happening.at,
            step=step,
            action=one.action,
            page=one.page,
            again=happening.again,
        )
