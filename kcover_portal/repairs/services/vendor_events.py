"""The signed events of vendors about their repairs: who may send them, and what they change."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

from kcover import actors, audit, reasons
from kcover.repairs import repairs, vendor_events
from kcover.repairs.vendor_events import VendorEvent
from kcover.values.quote import short_text
from kcover_portal.accounts.services import failed_attempts, throttle
from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.queries import vendor_signatures, vendors
from kcover_portal.lib import outgoing
from kcover_portal.lib.errors import FieldError, FieldErrors, Refused
from kcover_portal.repairs.models import Repair
from kcover_portal.repairs.services import deliveries, desk, moves
from kcover_portal.repairs.services.deliveries import Delivery

TIMESTAMP: Final = "X-Kcover-Timestamp"
TOLERANCE: Final = timedelta(minutes=5)
MAX_TIMESTAMP_DIGITS: Final = 11
PREFIXES: Final = ("part", "machine")  # details that have details


class EventForbidden(Refused):
    """The event is not signed by a vendor that may send events, or its time is wrong."""

    status = HTTPStatus.FORBIDDEN


class RepairUnknown(Refused):
    """The vendor has no such repair. The answer is the same whether the repair exists or not."""

    status = HTTPStatus.NOT_FOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A request as it arrived: the name of the sink in its path, its headers and its raw body.

    ``timestamp``: "" where the signature has none, as that of Jira.
    """

    name: str
    signature: str
    timestamp: str
    body: bytes = field(repr=False)
    address: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of the body, in hexadecimal."""
        return hashlib.sha256(self.body).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The content of an event. ``details``: as the vendor names them; ``columns``: the same by column of a repair."""

    delivery: str
    event: VendorEvent
    repair: int
    comment: str = ""
    sender: str = ""  # of a mail: the audit log shows it with the comment
    details: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """The vendor's words, for the audit log."""
        return f"{self.comment} ({self.sender})".strip() if self.sender else self.comment


def columns_of(details: Mapping[str, Any]) -> dict[str, Any]:
    """The details by column of a repair."""
    found = {name: value for name, value in details.items() if name not in PREFIXES}
    return found | {f"{prefix}_{name}": value for prefix in PREFIXES for name, value in details.get(prefix, {}).items()}


def authenticate(request: Signed, *, now: datetime) -> Sink:
    """The sink whose vendor signed the request.

    Raises EventForbidden, with the same reason whatever is wrong, except to the holder of the key: that one learns that
    its clock is wrong. Raises Throttled after wrong signatures from the same network, and SecretUnreadable. Only wrong
    signatures wait: strangers behind the address of a vendor cannot lock it out.
    """
    sink = vendor_signatures.sink_of_vendor(request.name)
    signed = vendor_signatures.is_signed(
        sink, name=request.name, timestamp=request.timestamp, body=request.body, header=request.signature
    )
    if sink is None or not signed:
        count_failure(request.name, address=request.address, exists=sink is not None, now=now)
        raise EventForbidden(_signature_invalid())
    check_time(request.timestamp, now=now, invalid=_signature_invalid())
    return sink


def count_failure(name: str, *, address: str, exists: bool, now: datetime) -> None:
    """Counts a wrong signature for the sink ``name``. Raises Throttled if it comes too soon after others."""
    about: dict[str, Any] = {"address": address, "exists": exists, "now": now}
    try:
        throttle.charge(throttle.of_vendor(name, address=address), now=now)
    except throttle.Throttled:
        failed_attempts.note(audit.VendorSignatureFailed, name, refused=True, **about)
        raise
    failed_attempts.note(audit.VendorSignatureFailed, name, refused=False, **about)


def _signature_invalid() -> reasons.Reason:
    return reasons.of("vendor_signature_invalid", header=outgoing.SIGNATURE, timestamp=TIMESTAMP)


def check_time(timestamp: str, *, now: datetime, invalid: reasons.Reason) -> None:
    """Raises EventForbidden unless the text is a Unix time in seconds within TOLERANCE; ``invalid``: if it is none."""
    if not re.fullmatch(rf"[0-9]{{1,{MAX_TIMESTAMP_DIGITS}}}", timestamp):
        raise EventForbidden(invalid)
    away = abs(now - datetime.fromtimestamp(int(timestamp), UTC))
    if away > TOLERANCE:
        span, limit = reasons.span(away), reasons.span(TOLERANCE)
        raise EventForbidden(reasons.of("vendor_timestamp_stale", timestamp=TIMESTAMP, span=span, limit=limit))


def take(sink: Sink, event: Event, *, digest: str, now: datetime) -> dict[str, Any]:
    """Carries out an event once, and returns the answer; that of the first time for a repeated delivery.

    Raises FieldError(s), RepairUnknown, DeliveryReused, and RepairRefused if the repair's state does not allow it.
    """
    delivery = Delivery(name=event.delivery, digest=digest, repair=event.repair, event=event.event.value)
    earlier = deliveries.earlier(sink, delivery)
    if earlier is not None:
        return earlier
    _check(event, now=now)
    repair = Repair.objects.filter(pk=event.repair).first()
    if repair is None or not vendors.may_change(sink, repair.vendor):
        raise _unknown(sink, event)
    return deliveries.once(sink, delivery, lambda: (_carry_out(sink, event, now=now), {}), now=now)


def _check(event: Event, *, now: datetime) -> None:
    """Raises FieldErrors for details that the event cannot give, FieldError for a missing comment or a far date."""
    surplus = vendor_events.surplus(event.event, list(event.details))
    if surplus:
        raise FieldErrors(
            [FieldError(name, reasons.of("vendor_detail_surplus", event=event.event.value)) for name in surplus]
        )
    scope = vendor_events.SCOPES[event.event]
    if (scope.comment or (scope.move is None and not event.columns)) and not event.comment.strip():
        raise FieldError("comment", reasons.of("vendor_comment_missing", event=event.event.value))
    if str(event.details.get("assignee", "")).startswith(repairs.ROLE_OWNER):  # a vendor appoints no role of the portal
        raise FieldError("assignee", reasons.of("vendor_assignee_role", prefix=repairs.ROLE_OWNER))
    due, latest = event.details.get("due"), now + timedelta(days=vendor_events.MAX_DUE_DAYS)
    if due is not None and (due.year > latest.year or due > latest):  # other time zones may have no such date
        raise FieldError("due", reasons.of("vendor_due_far", days=vendor_events.MAX_DUE_DAYS))


def _unknown(sink: Sink, event: Event) -> RepairUnknown:
    vendor = short_text(str(sink.options.get("vendor", sink.name)))
    return RepairUnknown(reasons.of("vendor_repair_unknown", vendor=vendor, repair=str(event.repair)))


def _carry_out(sink: Sink, event: Event, *, now: datetime) -> Repair:
    repair = moves.locked(event.repair)
    if not vendors.may_change(sink, repair.vendor):  # it was given to another vendor meanwhile
        raise _unknown(sink, event)
    if refusal := vendor_events.refusal(repair.stage, event.event):
        raise moves.RepairRefused(refusal)
    actor, move = actors.vendor(sink.name), vendor_events.SCOPES[event.event].move
    if move is not None:
        return desk.act(repair, move, event.columns, actor=actor, reason=event.reason, now=now)
    if event.columns:
        return desk.change(repair, event.columns, actor=actor, reason=event.reason, now=now)
    entry = audit.RepairCommented(repair=repair.pk, node=repair.node_name, reason=event.reason)
    moves.note(repair, entry, moves.Occasion(actor=actor, reason=event.reason, now=now))
    return repair
