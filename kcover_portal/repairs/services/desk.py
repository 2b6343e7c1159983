"""The services by which people report a repair, take it through its states and change its details."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from django.db import transaction

from kcover import actors, audit, reasons
from kcover.reasons import Reason
from kcover.repairs import repairs
from kcover.repairs.repairs import Move, Part, Validation
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.lib.errors import FieldError
from kcover_portal.repairs import queries
from kcover_portal.repairs.models import Repair
from kcover_portal.repairs.services import moves
from kcover_portal.repairs.services.machine_validation import MachineValidation, validation_of
from kcover_portal.repairs.services.moves import Occasion, RepairRefused as RepairRefused
from kcover_portal.rescue.models import Rescue

PART_KIND: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
MAX_PART_KIND: Final = 32  # characters


def report(
    node: Node,
    *,
    part: Part,
    details: Mapping[str, Any] | None = None,
    because: Sequence[Reason] = (),
    rescue: Rescue | None = None,
    actor: str,
    role: str = "",
    reason: str = "",
    now: datetime,
) -> Repair:
    """Opens a repair. ``details``: columns such as ``vendor`` and ``due``. ``because``: the portal's reasons.

    ``role``: by which the actor may do so; a refused repair goes back to it.

    Raises FieldError, and RepairRefused if a repair of this part is open.
    """
    given = dict(details or {})
    _check(given | {"part_kind": part.kind}, now=now)
    if not given.get("machine_serial"):
        given["machine_serial"] = fleet.machine_serials([node.pk]).get(node.pk, "")
    if given.get("due") is None:
        given["due"] = queries.due_by_terms(given.get("vendor", ""), repairs.State.REPORTED, now=now)
    why = tuple(because) or (reasons.with_why("repair_reported_by", reason, by=actors.username(actor)),)
    row = Repair(
        cluster=node.cluster,
        node=node,
        node_name=node.name,
        part_kind=part.kind,
        part_serial=part.serial,
        part_slot=part.slot,
        opened_because=[one.to_json() for one in why],
        opened_by=actor,
        opened_role=role,
        rescue=rescue,
        reported_at=now,
        **given,
    )
    with transaction.atomic():
        moves.save(row)
        entry = audit.RepairOpened(
            repair=row.pk,
            node=row.node_name,
            part=part,
            because=why,
            reason=reason,
            vendor=row.vendor,
            queue=row.queue,
            ticket=row.ticket,
            assignee=row.assignee,
            due=row.due,
            of_rescue=rescue.pk if rescue else None,
        )
        moves.note(row, entry, Occasion(actor=actor, reason=reason, now=now))
    return row


def act(
    repair: Repair, move: Move, details: Mapping[str, Any] | None = None, *, actor: str, reason: str, now: datetime
) -> Repair:
    """Takes a repair to its next state. ``details``: its assignee, due date and action, and the columns of its part.

    Raises FieldError, and RepairRefused if the move is not possible now.
    """
    given = dict(details or {})
    _check(given, now=now)
    with transaction.atomic():
        row = moves.locked(repair.pk)
        validated = validation_of(row) if move is Move.CLOSE else MachineValidation(validation=Validation.MISSING)
        if refusal := repairs.refusal(row.stage, move, validated.validation):
            raise RepairRefused(refusal)
        if move is Move.ACCEPT and not given.get("assignee"):  # somebody owns it from now on
            a_role = row.assignee.startswith(repairs.ROLE_OWNER)
            given["assignee"] = actors.username(actor) if a_role else row.assignee or actors.username(actor)
        if move is Move.HAND_OVER and "due" not in given:
            given["due"] = queries.due_by_terms(row.vendor, repairs.State.IN_REPAIR, now=now) or row.due
        if move is Move.RETURN:
            given |= _removed(row, given)
        if move is Move.REFUSE:  # it goes back to the role that opened it, which sets a new date
            given |= {"assignee": _opener(row), "due": None}
        occasion = Occasion(actor=actor, reason=reason, because=validated.because, now=now)
        moves.enter(row, repairs.TRANSITIONS[move].target, occasion, given)
    return row


def change(repair: Repair, details: Mapping[str, Any], *, actor: str, reason: str, now: datetime) -> Repair:
    """Changes columns of an open repair, all or none. Raises FieldError and RepairRefused."""
    _check(details, now=now)
    with transaction.atomic():
        row = moves.locked(repair.pk)
        if row.stage is repairs.State.CLOSED:
            raise RepairRefused(reasons.of("repair_closed_already"))
        changed = moves.assign(row, {**details, **(_removed(row, details) if row.in_repair_at else {})})
        if changed:
            moves.save(row, set(changed))
            entry = audit.RepairChanged(repair=row.pk, node=row.node_name, changed=changed, reason=reason)
            moves.note(row, entry, Occasion(actor=actor, reason=reason, now=now))
    return row


def _check(details: Mapping[str, Any], *, now: datetime) -> None:
    """Raises FieldError for a date in the past or far away, and for a part that is no word."""
    due, kind = details.get("due"), details.get("part_kind")
    if due is not None and due.year > now.year + repairs.MAX_DUE_YEARS:  # other time zones may have no such date
        raise FieldError("due", reasons.of("repair_due_far", years=repairs.MAX_DUE_YEARS))
    if due is not None and due <= now:
        raise FieldError("due", reasons.of("repair_due_past"))
    if kind is not None and not PART_KIND.fullmatch(kind):
        raise FieldError("part", reasons.of("repair_part_kind", most=MAX_PART_KIND))


def _removed(row: Repair, details: Mapping[str, Any]) -> dict[str, str]:
    """The serial number that the repair took out, where the details name another one."""
    column = "machine_serial" if row.part_kind == Part().kind else "part_serial"
    before = getattr(row, column)
    return {"removed_serial": before} if before and details.get(column, before) not in ("", before) else {}


def _opener(row: Repair) -> str:
    """The role that opened it, as an owner; where it is unknown, the person or program; "" if the portal did."""
    if row.opened_role:
        return f"{repairs.ROLE_OWNER}{row.opened_role}"
    by_somebody = actors.is_user(row.opened_by) or actors.is_token(row.opened_by)
    return actors.username(row.opened_by) if by_somebody else ""
