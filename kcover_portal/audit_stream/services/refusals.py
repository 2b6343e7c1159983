"""Records of repairs that a receiver refuses for good, such as a mail whose content its server rejects.

Each is tried ``MAX_REFUSALS`` times, for about a quarter of an hour. Then it is set aside, so that it does not hold up
the others, and the portal calls a person. Only a person sends it again or drops it.
"""

from datetime import datetime
from typing import Final

from django.db import transaction

from kcover import audit, reasons
from kcover_portal.audit_stream import senders
from kcover_portal.audit_stream.models import Refusal, Sink
from kcover_portal.audit_stream.queries import topics
from kcover_portal.audit_stream.queries.topics import Record
from kcover_portal.ledger import services as ledger

MAX_REFUSALS: Final = 10


@transaction.atomic
def note(sink: Sink, record: Record, reason: reasons.Reason, *, now: datetime) -> bool:
    """Counts a refusal. Returns whether the record is set aside, so that the sink may go on."""
    names = {"sink": sink, "topic": record.topic, "part": record.part, "number": record.number}
    row, _made = Refusal.objects.select_for_update().get_or_create(
        **names, defaults={"repair": record.document["repair"]}
    )
    row.times += 1
    row.because = reason.to_json()
    newly = row.times >= MAX_REFUSALS and row.set_aside_at is None
    row.set_aside_at = now if newly else row.set_aside_at
    row.save(update_fields=["times", "because", "set_aside_at"])
    if newly:
        act = audit.RecordSetAside(sink=sink.name, repair=row.repair, record=row.number, because=reason)
        ledger.record("", act, actor="system", now=now)
    return row.set_aside_at is not None


def forget(sink: Sink, record: Record) -> None:
    """The receiver took the record after all."""
    Refusal.objects.filter(sink=sink, topic=record.topic, part=record.part, number=record.number).delete()


def send_again(sink: Sink, *, actor: str, now: datetime) -> int:
    """Sends what was set aside, oldest first. Returns how many. Raises DeliveryError at the first that is refused."""
    sent = 0
    for row in Refusal.objects.filter(sink=sink).exclude(set_aside_at=None).order_by("number"):
        found = topics.TOPICS[row.topic].read(row.part, row.number - 1, 1)
        if found and found[0].number == row.number:
            senders.send(sink, found, now=now)
        with transaction.atomic():
            row.delete()
            act = audit.RecordSentAgain(sink=sink.name, repair=row.repair, record=row.number)
            ledger.record("", act, actor=actor, now=now)
        sent += 1
    return sent


@transaction.atomic
def drop(sink: Sink, *, actor: str, reason: str, now: datetime) -> int:
    """Drops what was set aside. Returns how many records; the audit log has one entry for each."""
    rows = list(Refusal.objects.select_for_update().filter(sink=sink).exclude(set_aside_at=None).order_by("number"))
    for row in rows:
        act = audit.RecordDropped(sink=sink.name, repair=row.repair, record=row.number, reason=reason)
        ledger.record("", act, actor=actor, now=now)
        row.delete()
    return len(rows)
