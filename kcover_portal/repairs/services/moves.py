"""One change of a repair's row: its columns, its entry in the audit log, the signal to open pages."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from kcover import audit, reasons
from kcover.audit import codec
from kcover.reasons import Reason
from kcover.repairs import repairs
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import Refused
from kcover_portal.repairs.models import Repair
from kcover_portal.repairs.services import ticket_events


class RepairRefused(Refused):
    """The present state of a repair is in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """The actor, time and reason of a change. ``reason`` is a person's own words, ``because`` the portal's finding."""

    actor: str
    now: datetime
    reason: str = ""
    because: Reason | None = None


def locked(pk: int) -> Repair:
    """The row, locked until the caller's transaction ends."""
    rows = Repair.objects.select_related("cluster", "node").select_for_update(of=("self",))
    return rows.get(pk=pk)


def enter(row: Repair, state: repairs.State, occasion: Occasion, details: Mapping[str, Any] | None = None) -> None:
    """Moves the locked row into a state, with the details by column. Raises RepairRefused for another repair's part."""
    before = row.stage
    changed = assign(row, details or {})
    row.state = Repair.State(state)
    if before is not repairs.State.VALIDATING or state is not repairs.State.RETURNED:  # it was returned before
        setattr(row, f"{state}_at", occasion.now)
    save(row, {*changed, "state", f"{state}_at"})
    act = audit.RepairMoved(
        repair=row.pk,
        node=row.node_name,
        state=audit.RepairMove(state),
        before=before,
        reason=occasion.reason,
        because=occasion.because,
        action=row.action if "action" in (details or {}) else "",
        changed={name: change for name, change in changed.items() if name != "action"},
    )
    note(row, act, occasion)


def assign(row: Repair, details: Mapping[str, Any]) -> dict[str, audit.Change]:
    """Sets the columns. Returns those that changed."""
    changed = {}
    for name, value in details.items():
        before = getattr(row, name)
        if before != value:
            setattr(row, name, value)
            changed[name] = audit.Change(before=codec.encode(before), after=codec.encode(value))
    return changed


def save(row: Repair, columns: set[str] | None = None) -> None:
    """Writes the row. Raises RepairRefused if another open repair is about the same part."""
    try:
        with transaction.atomic():
            row.save(update_fields=columns, force_insert=columns is None)
    except IntegrityError as error:
        part = {name: getattr(row, name) for name in ("node_name", "part_kind", "part_serial", "part_slot")}
        other = Repair.objects.filter(cluster=row.cluster, **part).exclude(state=Repair.State.CLOSED).first()
        if other is None:
            raise
        known = reasons.of("repair_open_already", repair=str(other.pk), node=row.node_name)
        raise RepairRefused(known) from error


def note(row: Repair, act: audit.RepairAct, occasion: Occasion) -> None:
    """Appends the entry, and tells open pages."""
    ledger.record(row.cluster.name, act, actor=occasion.actor, now=occasion.now)
    ticket_events.append(row, act, actor=occasion.actor, reason=occasion.reason, now=occasion.now)
    doorbell.publish("repair", row.pk, cluster=row.cluster.name)
