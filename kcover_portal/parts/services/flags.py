"""Why a person should look at a part: it was taken back or removed with faults, or two nodes report it."""

from collections.abc import Sequence
from datetime import datetime

from kcover import actors, audit, reasons
from kcover.machines import parts
from kcover.reasons import Reason
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.parts import queries
from kcover_portal.parts.models import Placement
from kcover_portal.repairs.models import Repair

MAX_REPAIRS = 20  # of a part, the latest ones


def returned(row: Placement, history: Sequence[Placement]) -> list[Reason]:
    """Why the part in a new placement should be looked at. ``history``: its earlier placements, newest first."""
    serial = row.part.serial
    for repair in queries.repairs_of(row.part)[:MAX_REPAIRS]:
        if repair.removed_serial == serial:
            return [_about("part_removed_by_repair", row, repair)]
        here = (repair.cluster_id, repair.node_name) == (row.cluster_id, row.node_name)
        if not (here and repair.closed_at is None) and not _was_proved(repair, history):
            return [_about("part_returned_of_repair", row, repair)]
    last = next((one for one in history if one.node_id is not None), None)
    if last is None or (last.cluster_id, last.node_name) == (row.cluster_id, row.node_name):
        return []
    if count := queries.last_faults(last):
        days = parts.FAULTS_COUNT_FOR.days
        return [reasons.of("part_returned_with_faults", serial=serial, count=count, days=days)]
    return []


def set_flags(row: Placement, because: Sequence[Reason], *, now: datetime) -> None:
    """Flags the placement, with an entry in the audit log; without reasons, does nothing."""
    if not because:
        return
    row.flags = [one.to_json() for one in because]
    row.flagged_at, row.reviewed_at, row.reviewed_by = now, None, ""
    row.save(update_fields=["flags", "flagged_at", "reviewed_at", "reviewed_by"])
    act = audit.PartFlagged(
        part=row.part_id,
        kind=row.part.kind,
        serial=row.part.serial,
        node=row.node_name,
        slot=row.slot,
        because=tuple(because),
    )
    ledger.record(row.cluster.name, act, actor=actors.SYSTEM, now=now)
    doorbell.publish("part", row.part_id, cluster=row.cluster.name)


def _was_proved(repair: Repair, history: Sequence[Placement]) -> bool:
    """Whether the part was in the repair's machine when a passed validation closed the repair."""
    at = repair.closed_at
    return at is not None and any(
        (one.cluster_id, one.node_name) == (repair.cluster_id, repair.node_name)
        and one.since <= at
        and ((until := one.ended_at) is None or until >= at)
        for one in history
    )


def _about(code: str, row: Placement, repair: Repair) -> Reason:
    return reasons.of(code, serial=row.part.serial, repair=str(repair.pk))
