"""Reminders: a pending request is sent once more on the channels that sent it.

A reminder is a notice under a key that names the request, so a channel reminds once even if a worker dies in between. A
request that was answered, withdrawn or expired in the meantime gets no reminder.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet

from kcover import reasons
from kcover.notify import events
from kcover_portal.lib.prepared import Prepared
from kcover_portal.notify.models import Channel, Delivery, Notice
from kcover_portal.notify.services import collect
from kcover_portal.notify.services.new_event import NewEvent
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import needs_person

QUESTION = "approval.waiting"


@dataclass(frozen=True, slots=True)
class _Due:
    channel: Channel
    found: NewEvent


def remind(*, now: datetime) -> int:
    """Adds the reminders that are due to the batching deliveries. Returns how many."""
    if not _due(now=now):
        return 0
    with transaction.atomic():
        if collect.lock(now=now) is None:
            return 0
        due = _due(now=now)
        for reminder in due:
            collect.add_notices(reminder.channel, [reminder.found], wanted={reminder.found.key}, now=now)
    return len(due)


def drop_obsolete(delivery: Delivery, *, now: datetime) -> bool:
    """Removes reminders of requests that need no answer any more. Returns whether the delivery has notices left."""
    reminders = list(delivery.notices.filter(again=True))
    if not reminders:
        return True
    waiting = {_key(rescue) for rescue in _waiting(now=now).filter(pk__in=[notice.record for notice in reminders])}
    delivery.notices.filter(pk__in=[notice.pk for notice in reminders if notice.key not in waiting]).delete()
    return delivery.notices.exists()


def _due(*, now: datetime) -> Sequence[_Due]:
    questions = {rescue.pk: rescue for rescue in _WAITING.rows(now=now)}
    if not questions:
        return ()
    notices = Notice.objects.filter(kind=QUESTION, record__in=list(questions), again=False, channel__enabled=True)
    notices = notices.exclude(channel__kind__in=Channel.PAGERS).select_related("channel", "delivery").order_by("pk")
    latest = {(reminder.channel_id, reminder.record): reminder for reminder in notices}
    found = []
    for notice in latest.values():
        rescue, channel = questions[notice.record or 0], notice.channel
        assert rescue.expires_at is not None  # filtered
        assert channel is not None  # filtered
        if notice.at < rescue.expires_at - timedelta(seconds=rescue.approval_seconds):
            continue  # of an earlier request of the same rescue
        delivered_at = notice.delivery.closed_at
        if delivered_at is None:
            continue  # not sent yet, so a reminder would come with the request itself
        at = events.reminder_at(delivered_at, rescue.expires_at, after=channel.remind)
        if at is not None and at <= now:
            found.append(_Due(channel, _reminder(notice, rescue, now=now)))
    keys = {reminder.found.key for reminder in found}
    known = set(Notice.objects.filter(key__in=keys).values_list("channel", "key"))
    return [reminder for reminder in found if (reminder.channel.pk, reminder.found.key) not in known]


def _waiting(*, now: datetime) -> QuerySet[Rescue]:
    """The rescues with a request that can still be answered."""
    return needs_person.awaiting_approval().filter(expires_at__gt=now).order_by("pk")


_WAITING = Prepared(lambda now: _waiting(now=now), now=datetime)


def _reminder(notice: Notice, rescue: Rescue, *, now: datetime) -> NewEvent:
    assert rescue.expires_at is not None  # filtered
    event = events.Event(
        kind=QUESTION,
        at=now,
        cluster=notice.cluster,
        node=notice.node,
        what=notice.what,
        record=rescue.pk,
        because=reasons.of("still_unanswered", until=reasons.moment(rescue.expires_at)),
        again=True,
    )
    return NewEvent(_key(rescue), event)


def _key(rescue: Rescue) -> str:
    """The key of the request; a rescue may have several in turn."""
    assert rescue.expires_at is not None  # filtered
    return f"reminder-{rescue.pk}-{rescue.expires_at.isoformat()}"
