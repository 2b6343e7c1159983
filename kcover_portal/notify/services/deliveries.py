"""Send deliveries: claim a delivery under a lease, send it once, record the result.

At least once: if a worker dies between the answer and the row, its lease expires, and another worker sends the message
again under the same key. At most ``queries.MAX_CONCURRENT_SENDS`` are under way, as the workers are there for rescues.
"""

import dataclasses
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F
from django.utils import translation

from kcover import audit, reasons
from kcover.notify import events, retries
from kcover.reasons import Reason
from kcover_portal.accounts import queries as accounts
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.notify import queries, senders
from kcover_portal.notify.models import Channel, Cursor, Delivery
from kcover_portal.notify.services import alerts, collect, delivery_spans, reminders, render
from kcover_portal.rescue.control import notify_steps
from kcover_portal.runtime.services import claims, retention

LEASE = timedelta(seconds=60)  # longer than any send may take
PAGING_SECONDS = 40.0  # in which the events of one delivery may begin; the last one has its own time on top
CLAIM = "claim"
SEND = "notify.send"
CLAIMS = claims.Claims(
    model=Delivery, due=queries.due_deliveries, lasts=LEASE, state=Delivery.State.SENDING, related=("channel__person",)
)


def sweep(*, now: datetime) -> None:
    """Collects new events, and wakes workers for the deliveries that are due."""
    collect.collect(now=now)
    collect.collect_steps(now=now)
    reminders.remind(now=now)
    free = queries.MAX_CONCURRENT_SENDS - queries.sending(now=now)
    for pk in queries.due(now=now, limit=max(free, 0)):
        doorbell.ring(SEND, pk)


def send(delivery_id: int, *, clock: Callable[[], datetime]) -> None:
    """Sends a delivery that is due, once; does nothing if it is not due or another worker has it."""
    delivery = claim(delivery_id, now=clock())
    if delivery is None:
        return
    channel = delivery.channel
    if channel is None or not channel.enabled:
        settle(delivery, Delivery.State.DROPPED, reasons.of("channel_off"), now=clock())
        return
    if delivery.attempts > len(retries.RETRY_DELAYS) + 1:
        settle(delivery, Delivery.State.FAILED, reasons.of("workers_died"), now=clock())
        return
    if not reminders.drop_obsolete(delivery, now=clock()):
        settle(delivery, Delivery.State.DROPPED, reasons.of("question_settled"), now=clock())
        return
    message = _message(delivery, channel, now=clock())
    try:
        with delivery_spans.of(delivery, channel, clock=clock):
            answer = _page(delivery, channel, message, clock=clock) if channel.pages else senders.send(channel, message)
    except senders.SendError as refusal:
        _send_failed(delivery, channel, refusal, now=clock())
    else:
        settle(delivery, Delivery.State.SENT, answer, now=clock())


def test(channel: Channel, *, actor: str, now: datetime) -> Delivery:
    """Sends a test message at once, with a single attempt; the delivery shows the result."""
    with transaction.atomic():
        delivery = Delivery.objects.create(
            channel=channel, name=channel.name, test=True, key=uuid.uuid4(), opened_at=now, due_at=now
        )
        ledger.record("", audit.ChannelTested(channel=channel.name), actor=actor, now=now)
        doorbell.ring(SEND, delivery.pk)
        doorbell.publish("notify", delivery.pk)
    return delivery


def again(delivery: Delivery, *, now: datetime) -> bool:
    """Retries a failed delivery; False where it has not failed or its channel is deleted."""
    with transaction.atomic():
        rows = Delivery.objects.filter(pk=delivery.pk, state=Delivery.State.FAILED, channel__isnull=False)
        moved = rows.update(state=Delivery.State.PENDING, attempts=0, due_at=now, closed_at=None)
        if moved:
            doorbell.ring(SEND, delivery.pk)
            doorbell.publish("notify", delivery.pk)
    return bool(moved)


def prune(*, now: datetime) -> int:
    """Deletes old deliveries with their notices; returns the number of rows."""
    removed, _ = Delivery.objects.filter(closed_at__lt=retention.before(Delivery, now=now)).delete()
    return removed


def claim(delivery_id: int, *, now: datetime) -> Delivery | None:
    """Takes the lease and reserves the attempt. One worker at a time, so that the bound on concurrent sends holds."""
    with transaction.atomic():
        Cursor.objects.get_or_create(name=CLAIM, defaults={"at": now})
        Cursor.objects.select_for_update().get(name=CLAIM)
        if queries.sending(now=now) >= queries.MAX_CONCURRENT_SENDS:
            return None
        reserved = {"state": Delivery.State.SENDING, "batching": False, "attempts": F("attempts") + 1}
        delivery = CLAIMS.take(delivery_id, now=now, **reserved)
        if delivery is None:
            return None
        if not delivery.test:
            Channel.objects.filter(deliveries=delivery).update(tried_at=now)
        doorbell.publish("notify", delivery_id)
    return delivery


def _message(delivery: Delivery, channel: Channel, *, now: datetime) -> senders.Message:
    """The message to send. The stored copy has no links that answer in a person's name."""
    message = render.message(delivery, channel, now=now)
    if channel.pages:
        with translation.override(channel.language):
            message = dataclasses.replace(message, events=alerts.pager_events(delivery, channel, now=now))
    CLAIMS.write(delivery, subject=message.subject, text="\n".join(message.lines))
    found = render.answer_links(delivery, channel)
    if channel.person is None or not found:
        return message
    for rescue, _line in found if delivery.attempts == 1 else ():
        act = audit.ApprovalLinkMade(
            rescue=rescue.pk,
            node=rescue.node.name,
            approver=accounts.actor(channel.person),
            step=rescue.gate or 0,
            plan_hash=rescue.plan_hash,
            channel=channel.name,
        )
        ledger.record(rescue.cluster.name, act, actor="system", now=now)
    return dataclasses.replace(message, lines=(*message.lines, *(line for _rescue, line in found)))


def _page(delivery: Delivery, channel: Channel, message: senders.Message, *, clock: Callable[[], datetime]) -> Reason:
    """Sends a pager its events one by one, and records each accepted one, so that a retry continues from there.

    An event that is refused for good does not stop the others. Raises SendError.
    """
    until, taken, total = time.monotonic() + PAGING_SECONDS, 0, len(message.events)
    answer = reasons.of("no_events")
    refused: list[senders.SendError] = []
    for event in message.events:
        try:
            if (taken or refused) and time.monotonic() >= until:
                raise senders.SendError(reasons.of("events_sent_so_far", sent=taken, total=total), later=True)
            answer = senders.page(channel, event, key=message.key)
        except senders.SendError as refusal:
            if not refusal.later:
                refused.append(refusal)
                continue
            if taken:  # it accepts them, only not all at once: that costs no attempt
                CLAIMS.write(delivery, attempts=1)
            raise
        taken += 1
        _taken(delivery, event, now=clock())
    if refused:
        rejected = reasons.of("events_rejected", count=len(refused), total=total) if total > 1 else None
        raise senders.SendError(reasons.both(refused[0].reason, rejected), later=False)
    return reasons.both(answer, reasons.of("events_accepted", count=taken) if taken > 1 else None)


def _taken(delivery: Delivery, event: senders.PagerEvent, *, now: datetime) -> None:
    """Records it, and settles the steps that waited for this event, independently of the others."""
    with transaction.atomic():
        rows = delivery.notices.filter(pk__in=event.notices)
        rows.update(accepted_at=now)
        for step in rows.filter(step__isnull=False).values_list("step", flat=True):
            notify_steps.settle_step(step, because=reasons.of("notify_delivered", channel=delivery.name), now=now)


def _send_failed(delivery: Delivery, channel: Channel, refusal: senders.SendError, *, now: datetime) -> None:
    again, tries = refusal.later and not delivery.test, delivery.attempts
    if channel.pages and now - delivery.opened_at < events.MAX_AGE:
        # Without its end a page stays open until a person looks, and a page that never opened wakes nobody.
        tries = min(tries, len(retries.RETRY_DELAYS))
    next_try = retries.retry_at(tries, now=now, wait=refusal.wait) if again else None
    if next_try is None:
        settle(delivery, Delivery.State.FAILED, refusal.reason, now=now)
        return
    with transaction.atomic():
        because = refusal.reason.to_json()
        if _still_ours(delivery, state=Delivery.State.PENDING, attempts=tries, due_at=next_try, because=because):
            Channel.objects.filter(deliveries=delivery).update(trouble=because)


def settle(delivery: Delivery, state: str, because: Reason, *, now: datetime) -> None:
    """Ends the delivery and settles the steps that waited for it."""
    with transaction.atomic():
        if not _still_ours(delivery, state=state, because=because.to_json(), due_at=None, closed_at=now):
            return
        sent = state == Delivery.State.SENT
        if state != Delivery.State.DROPPED:  # which says nothing about the other side
            change = {"sent_at": now, "trouble": {}} if sent else {"trouble": because.to_json()}
            Channel.objects.filter(deliveries=delivery).update(**change)
        for step in queries.steps_of(delivery):
            if sent:
                notify_steps.settle_step(step, because=reasons.of("notify_delivered", channel=delivery.name), now=now)
            elif not queries.is_pending(step):
                failed = reasons.of("notify_failed", channel=delivery.name, why=because)
                notify_steps.settle_step(step, because=failed, now=now)


def _still_ours(delivery: Delivery, **fields: object) -> bool:
    ours = CLAIMS.put_back(delivery, **fields)
    doorbell.publish("notify", delivery.pk)
    return ours
