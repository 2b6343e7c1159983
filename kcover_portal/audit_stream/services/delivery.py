"""Delivers records: read after the position, send, then move the position.

At least once: the position moves only after the receiver has the records. A worker that dies in between sends them
again, with the same ids. Only a mail that its server refuses for good is set aside (``refusals``).
One worker at a time serves a sink, and stops once another one has it; a lease that expires costs repeats, and loses
nothing.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F

from kcover import reasons
from kcover.values import back_off
from kcover_portal import encryption
from kcover_portal.audit_stream import queries, senders
from kcover_portal.audit_stream.models import Position, Sink
from kcover_portal.audit_stream.queries import vendors
from kcover_portal.audit_stream.queries.topics import Record
from kcover_portal.audit_stream.services import refusals
from kcover_portal.lib import doorbell
from kcover_portal.runtime.services import leases

log = logging.getLogger(__name__)

DELIVER = "audit_stream.deliver"
LEASE_TIME = timedelta(seconds=60)  # longer than any send may take; renewed after each batch
BATCHES_PER_TASK = 10  # batches in one task, so that a long backlog does not keep a worker from rescues
LEAST_WAIT, MAX_WAIT = timedelta(seconds=2), timedelta(minutes=5)  # after failures


def sweep(*, now: datetime) -> None:
    """Wakes a worker for each sink that is due."""
    for sink in queries.due(now=now):
        doorbell.ring(DELIVER, sink.pk)


def deliver(sink_id: int, *, clock: Callable[[], datetime]) -> int:
    """Sends what the sink has not received, some batches at a time. Returns the number of records."""
    total = 0
    with leases.leading(f"audit stream {sink_id}", ttl=LEASE_TIME, clock=clock) as leads:
        for _ in range(BATCHES_PER_TASK if leads else 0):
            sent = _send_batch(sink_id, clock=clock)
            total += sent
            if not sent or not leads.renew():
                break
    return total


def _send_batch(sink_id: int, *, clock: Callable[[], datetime]) -> int:
    sink = Sink.objects.filter(pk=sink_id, enabled=True, due_at__lte=clock()).prefetch_related("positions").first()
    if sink is None:
        return 0
    records = queries.batch(sink, most=1 if sink.kind in Sink.TICKETS else queries.MAX_RECORDS)
    limited = (vendors.limited(sink, record) for record in records)
    wanted = [record for record in limited if record is not None]
    try:
        senders.finish(sink, now=clock())
        if wanted:
            senders.send(sink, wanted, now=clock())
        if wanted and sink.kind == Sink.Kind.MAIL:
            refusals.forget(sink, wanted[0])
    except (senders.DeliveryError, encryption.SecretUnreadable) as error:
        if not _is_set_aside(sink, wanted, error, now=clock()):
            _failed(sink, error.reason, wait=getattr(error, "wait", 0.0), now=clock())
            return 0
        wanted = []
    if not records:
        return 0
    received(sink, records, sent=len(wanted), now=clock())
    return len(records)


def _is_set_aside(sink: Sink, wanted: Sequence[Record], error: Exception, *, now: datetime) -> bool:
    """Returns whether the sink goes on without the record, which the receiver has refused for good many times."""
    if not isinstance(error, senders.DeliveryError) or not error.lasting or sink.kind not in Sink.TICKETS:
        return False
    (record,) = wanted  # a batch of tickets has one
    return refusals.note(sink, record, error.reason, now=now)


@transaction.atomic
def received(sink: Sink, records: Sequence[Record], *, sent: int, now: datetime) -> None:
    """Moves the sink's positions behind these records, of which it got ``sent``; a position never moves back."""
    last = {(record.topic, record.part): record.number for record in records}
    for (topic, part), number in last.items():
        rows = Position.objects.filter(sink=sink, topic=topic, part=part)
        if not rows.filter(number__lt=number).update(number=number) and not rows.exists():
            Position.objects.get_or_create(sink=sink, topic=topic, part=part, defaults={"number": number})
    counted = {"sent": F("sent") + sent, "sent_at": now} if sent else {}
    Sink.objects.filter(pk=sink.pk).update(attempts=0, problem={}, due_at=now, **counted)


def _failed(sink: Sink, reason: reasons.Reason, *, wait: float, now: datetime) -> None:
    log.error("audit sink %s: %s", sink.name, reason)
    Sink.objects.filter(pk=sink.pk).update(
        attempts=F("attempts") + 1,
        failures=F("failures") + 1,
        problem=reason.to_json(),
        due_at=now + back_off.doubled(sink.attempts + 1, least=LEAST_WAIT, most=MAX_WAIT, asked=wait),
    )
