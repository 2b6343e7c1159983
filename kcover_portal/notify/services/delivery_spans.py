"""The spans of deliveries: one in the trace of each incident that a message is about."""

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from kcover_portal import tracing
from kcover_portal.notify.models import Channel, Delivery
from kcover_portal.rescue.queries import traces

MAX_SUBJECTS: Final = 16  # of one message; a burst of events shares it
_OF_INCIDENT: Final = ("incident.", "agent.")
_OF_RESCUE: Final = ("rescue.", "approval.")


@contextlib.contextmanager
def of(delivery: Delivery, channel: Channel, *, clock: Callable[[], datetime]) -> Iterator[None]:
    """Records the spans of the delivery that the block sends. ``sent`` is False if an error leaves the block."""
    if not tracing.is_on():
        yield
        return
    subjects, began, sent = _subjects(delivery), clock(), False
    try:
        yield
        sent = True
    finally:
        for subject in subjects:
            tracing.record(subject, "notify", began=began, delivery=delivery.pk, channel=channel.kind, sent=sent)


def _subjects(delivery: Delivery) -> list[tracing.Subject]:
    found: dict[tracing.Subject, None] = {}
    for kind, record in delivery.notices.values_list("kind", "record").distinct()[:MAX_SUBJECTS]:
        subject = None
        if record is not None and kind.startswith(_OF_INCIDENT):
            subject = tracing.incident(record)
        elif record is not None and kind.startswith(_OF_RESCUE):
            subject = traces.subject_of_key(record)
        if subject is not None:
            found[subject] = None
    return list(found)
