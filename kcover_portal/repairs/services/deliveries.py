"""Deliveries from other systems: each is carried out once, and a repeated one gets the answer of the first.

A delivery that was carried out is a row with its answer. A refused one leaves no row: it changed nothing, and may be
sent again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from django.db import IntegrityError, transaction

from kcover import reasons
from kcover_portal.audit_stream.models import Sink
from kcover_portal.lib.errors import Refused
from kcover_portal.repairs.models import Repair, VendorDelivery
from kcover_portal.runtime.services import retention


class DeliveryReused(Refused):
    """The delivery's id belongs to an event with another body."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What arrived. ``name``: its id, at most 100 characters; ``digest``: SHA-256 of what must not differ."""

    name: str
    digest: str
    repair: int
    event: str


CarryOut = Callable[[], tuple[Repair, dict[str, Any]]]


def earlier(sink: Sink, delivery: Delivery) -> dict[str, Any] | None:
    """The answer of the first time; None if there was none. Raises DeliveryReused."""
    row = VendorDelivery.objects.filter(sink=sink, delivery=delivery.name).first()
    if row is not None and row.digest != delivery.digest:
        raise DeliveryReused(reasons.of("vendor_delivery_reused", delivery=delivery.name))
    return dict(row.answer) if row is not None else None


def once(sink: Sink, delivery: Delivery, carry_out: CarryOut, *, now: datetime) -> dict[str, Any]:
    """Carries out a delivery unless it was, and returns its answer. Raises DeliveryReused, and what it raises.

    ``carry_out`` returns the repair and what the answer has besides its id and state.
    """
    try:
        with transaction.atomic():
            row = VendorDelivery.objects.create(
                sink=sink,
                delivery=delivery.name,
                digest=delivery.digest,
                repair_id=delivery.repair,
                event=delivery.event,
                answer={},
                received_at=now,
            )
            repair, more = carry_out()
            row.answer = {"delivery": delivery.name, "repair": repair.pk, "state": str(repair.state), **more}
            row.save(update_fields=["answer"])
            return dict(row.answer)
    except IntegrityError:
        answer = earlier(sink, delivery)  # another process has just carried it out
        if answer is None:
            raise
        return answer


def forget(*, now: datetime) -> None:
    """Deletes the answers that nobody asks for any more."""
    VendorDelivery.objects.filter(received_at__lt=retention.before(VendorDelivery, now=now)).delete()
