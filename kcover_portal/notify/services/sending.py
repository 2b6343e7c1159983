"""Sending: claim a delivery under a lease, send it once, settle what came of it.

At least once: a worker that dies between the answer and its row leaves a lease that runs out, and another one sends the
message again, under the same key. At most ``queries.AT_ONE_TIME`` are under way, whatever hangs: the workers are the
rescues'.
"""

import dataclasses
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import translation

from kcover import notices
from kcover_portal import doorbell
from kcover_portal.ledger import services as ledger
from kcover_portal.notify import queries, senders
from kcover_portal.notify.models import Channel, Cursor, Delivery
from kcover_portal.notify.services import alerting, collecting, composing, reminding
from kcover_portal.rescue.services import telling

LEASE = timedelta(seconds=60)  # longer than any send may take
PAGING = 40.0  # seconds for the events of one delivery to begin in: the last of them has its own time on top
CLAIM = "claim"
SEND = "notify.send"


def sweep(*, now: datetime) -> None:
    """Collects what came about, and wakes workers for what is due."""
    collecting.collect(now=now)
    collecting.take_up(now=now)
    reminding.remind(now=now)
    free = queries.AT_ONE_TIME - queries.sending(now=now)
    for pk in queries.due(now=now, limit=max(free, 0)):
        doorbell.ring(SEND, pk)


def send(delivery_id: int, *, clock: Callable[[], datetime]) -> None:
    """Sends a delivery that is due, once; does nothing if it is not, or somebody else has it."""
    delivery = _claim(delivery_id, now=clock())
    if delivery is None:
        return
    channel = delivery.channel
    if channel is None or not channel.enabled:
        _settle(delivery, Delivery.State.DROPPED, "the channel is switched off or gone", now=clock())
        return
    if delivery.attempts > len(notices.BACK_OFF) + 1:
        _settle(delivery, Delivery.State.FAILED, "given up: its workers died each time", now=clock())
        return
    if not reminding.leave_out(delivery, now=clock()):
        _settle(delivery, Delivery.State.DROPPED, "nobody waits for an answer any more", now=clock())
        return
    message = _message(delivery, channel, now=clock())
    try:
        said = _page(delivery, channel, message, clock=clock) if channel.pages else senders.send(channel, message)
    except senders.NotTaken as refusal:
        _not_taken(delivery, channel, refusal, now=clock())
    else:
        _settle(delivery, Delivery.State.SENT, said, now=clock())


def test(channel: Channel, *, actor: str, now: datetime) -> Delivery:
    """Sends a test message at once, tried a single time; the delivery tells what came of it."""
    with transaction.atomic():
        delivery = Delivery.objects.create(
            channel=channel, name=channel.name, test=True, key=uuid.uuid4(), opened_at=now, due_at=now
        )
        ledger.write("", actor=actor, verb="channel.tested", subject=f"channel {channel.name}", now=now)
        doorbell.ring(SEND, delivery.pk)
        doorbell.tell("notify", delivery.pk)
    return delivery


def again(delivery: Delivery, *, now: datetime) -> bool:
    """Lets a delivery that was given up be tried anew; False where it was not given up or its channel is gone."""
    with transaction.atomic():
        rows = Delivery.objects.filter(pk=delivery.pk, state=Delivery.State.FAILED, channel__isnull=False)
        moved = rows.update(state=Delivery.State.PENDING, attempts=0, due_at=now, closed_at=None)
        if moved:
            doorbell.ring(SEND, delivery.pk)
            doorbell.tell("notify", delivery.pk)
    return bool(moved)


def prune(*, now: datetime) -> int:
    """Forgets deliveries that ended KCOVER_KEEP_DAYS ago, with what they told; returns how many rows."""
    before = now - timedelta(days=settings.KCOVER_KEEP_DAYS)
    removed, _ = Delivery.objects.filter(closed_at__lt=before).delete()
    return removed


def _claim(delivery_id: int, *, now: datetime) -> Delivery | None:
    """Takes the lease and reserves the try, in line with all who do: so the bound on sends under way holds."""
    with transaction.atomic():
        Cursor.objects.get_or_create(name=CLAIM, defaults={"at": now})
        Cursor.objects.select_for_update().get(name=CLAIM)
        if queries.sending(now=now) >= queries.AT_ONE_TIME:
            return None
        claimed = queries.claimable(delivery_id, now=now).update(
            state=Delivery.State.SENDING,
            gathers=False,
            token=F("token") + 1,
            attempts=F("attempts") + 1,
            lease_until=now + LEASE,
        )
        if not claimed:
            return None
        delivery = Delivery.objects.select_related("channel__person").get(pk=delivery_id)
        if not delivery.test:
            Channel.objects.filter(deliveries=delivery).update(tried_at=now)
        doorbell.tell("notify", delivery_id)
    return delivery


def _message(delivery: Delivery, channel: Channel, *, now: datetime) -> senders.Message:
    """What is sent; what is kept of it has no link that answers in somebody's name."""
    message = composing.compose(delivery, channel, now=now)
    if channel.pages:
        with translation.override(channel.language):
            message = dataclasses.replace(message, events=alerting.events(delivery, channel))
    Delivery.objects.filter(pk=delivery.pk, token=delivery.token).update(
        subject=message.subject, text="\n".join(message.lines)
    )
    if channel.person is None or not channel.person.is_active:
        return message
    found = composing.answers(delivery, channel.person, language=channel.language)
    for rescue, _line in found if delivery.attempts == 1 else ():
        ledger.write(
            rescue.cluster.name,
            actor="system",
            verb="rescue.link_made",
            subject=f"rescue {rescue.pk}",
            node=rescue.node.name,
            rescue=rescue.pk,
            now=now,
            data={"for": f"user:{channel.person.get_username()}", "channel": channel.name, "step": rescue.gate or 0},
        )
    return dataclasses.replace(message, lines=(*message.lines, *(line for _rescue, line in found)))


def _page(delivery: Delivery, channel: Channel, message: senders.Message, *, clock: Callable[[], datetime]) -> str:
    """Gives a pager its events one by one, and notes each that it took: another try goes on from there.

    One that is refused for good keeps the others from nobody. Raises NotTaken.
    """
    until, taken, said = time.monotonic() + PAGING, 0, "nothing to page"
    refused: list[senders.NotTaken] = []
    for event in message.events:
        try:
            if (taken or refused) and time.monotonic() >= until:
                raise senders.NotTaken(f"{taken} of {len(message.events)} events so far", later=True)
            said = senders.page(channel, event, key=message.key)
        except senders.NotTaken as refusal:
            if not refusal.later:
                refused.append(refusal)
                continue
            if taken:  # it takes them, only not all at once: that is no failure, and costs no try
                delivery.attempts = 1
                _ours(delivery).update(attempts=1)
            raise
        taken += 1
        _taken(delivery, event, now=clock())
    if refused:
        of = f" ({len(refused)} of {len(message.events)} events)" if len(message.events) > 1 else ""
        raise senders.NotTaken(f"{refused[0]}{of}", later=False)
    return said if taken < 2 else f"{said} to {taken} events"


def _taken(delivery: Delivery, event: senders.Event, *, now: datetime) -> None:
    """Notes it, and settles the steps that waited for this event, whatever comes of the others."""
    with transaction.atomic():
        rows = delivery.notices.filter(pk__in=event.notices)
        rows.update(told_at=now)
        for step in rows.filter(step__isnull=False).values_list("step", flat=True):
            telling.told(step, said=f"{delivery.name} was told", now=now)


def _not_taken(delivery: Delivery, channel: Channel, refusal: senders.NotTaken, *, now: datetime) -> None:
    again, tries = refusal.later and not delivery.test, delivery.attempts
    if channel.pages and now - delivery.opened_at < notices.STALE:
        # A page whose end is lost stays open until somebody looks, and one that never opened wakes nobody.
        tries = min(tries, len(notices.BACK_OFF))
    next_try = notices.next_try(tries, now=now, wait=refusal.wait) if again else None
    if next_try is None:
        _settle(delivery, Delivery.State.FAILED, str(refusal), now=now)
        return
    with transaction.atomic():
        said = str(refusal)[:500]
        if _still_ours(delivery, state=Delivery.State.PENDING, attempts=tries, due_at=next_try, because=said):
            Channel.objects.filter(deliveries=delivery).update(trouble=said)


def _settle(delivery: Delivery, state: str, said: str, *, now: datetime) -> None:
    """The delivery's end, and that of the steps that waited for it."""
    with transaction.atomic():
        if not _still_ours(delivery, state=state, because=said[:500], due_at=None, closed_at=now):
            return
        sent = state == Delivery.State.SENT
        if state != Delivery.State.DROPPED:  # that says nothing of the other side
            change = {"sent_at": now, "trouble": ""} if sent else {"trouble": said[:500]}
            Channel.objects.filter(deliveries=delivery).update(**change)
        for step in queries.steps_told_by(delivery):
            if sent:
                telling.told(step, said=f"{delivery.name} was told", now=now)
            elif not queries.may_yet_tell(step):
                telling.told(step, said=f"not delivered: {delivery.name}: {said}", now=now)


def _still_ours(delivery: Delivery, **fields: object) -> bool:
    """Updates the delivery if this worker's token still stands; gives the lease back."""
    ours = bool(_ours(delivery).update(lease_until=None, **fields))
    doorbell.tell("notify", delivery.pk)
    return ours


def _ours(delivery: Delivery) -> QuerySet[Delivery]:
    return Delivery.objects.filter(pk=delivery.pk, token=delivery.token, state=Delivery.State.SENDING)
