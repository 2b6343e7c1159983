"""Opens the incidents of faults: one at a time, or those of a report together."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from kcover.faults import xid
from kcover_portal.fleet.models import Gpu, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import occurrences, report_spans, source_fault, timed_fault
from kcover_portal.incidents.services.fault_columns import Identity, worst_of
from kcover_portal.incidents.services.fault_groups import FaultGroup
from kcover_portal.lib import doorbell
from kcover_portal.lib.prepared import Prepared


def open_one(
    node: Node, group: FaultGroup, columns: Mapping[str, Any], *, boot_id: str, now: datetime
) -> tuple[Incident, bool]:
    """Finds or opens the one open incident of the fault. ``columns``: set if it is opened.

    Returns it, and whether it is new; then it has its occurrences. Of two concurrent callers, one opens it.
    """
    row = _incident(node, group, _gpu_uuids(node, [group]), boot_id=boot_id, now=now)
    for column, value in columns.items():
        setattr(row, column, value)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        kind, code, device = group.identity
        open_now = Incident.objects.filter(node=node, state=Incident.State.OPEN)
        return open_now.get(kind=kind, code=code, device=device), False
    _opened(node, [(row, group)], boot_id=boot_id, now=now)
    return row, True


def open_together(node: Node, groups: Sequence[FaultGroup], *, boot_id: str, now: datetime) -> set[Identity]:
    """Opens the incidents of several faults, with as many statements as for one. Returns the identities.

    Returns none if there is only one fault, or if another caller opened one of them: then open one at a time.
    """
    if len(groups) < 2:
        return set()
    uuids = _gpu_uuids(node, groups)
    rows = [_incident(node, group, uuids, boot_id=boot_id, now=now) for group in groups]
    try:
        with transaction.atomic():
            Incident.objects.bulk_create(rows)
    except IntegrityError:
        return set()
    _opened(node, list(zip(rows, groups, strict=True)), boot_id=boot_id, now=now)
    return {group.identity for group in groups}


def _opened(node: Node, opened: Sequence[tuple[Incident, FaultGroup]], *, boot_id: str, now: datetime) -> None:
    occurrences.keep_first(node, [(row, group.fresh) for row, group in opened], boot_id=boot_id, now=now)
    for row, _ in opened:
        if row.decide_at is not None and row.decide_at <= now:
            doorbell.ring("rescue.decide", row.pk)
        doorbell.publish("incident", row.pk, cluster=node.cluster.name)
        report_spans.add(node, row, opened=True, now=now)


def _incident(node: Node, group: FaultGroup, uuids: Mapping[str, str], *, boot_id: str, now: datetime) -> Incident:
    kind, code, device = group.identity
    seen = group.fresh
    first, at = seen[0], timed_fault.last_seen(seen, now=now)
    columns = {
        **worst_of(seen),
        "drill": all(reported.drill for reported in seen),
        "boot_id": boot_id,
        "count": sum(reported.count for reported in seen),
        "opened_at": at,
        "last_at": at,
        "decide_at": source_fault.first_decision(seen, now=now),
        "counted_records": group.counted,
        "gpu_uuid": first.gpu_uuid or uuids.get(source_fault.named_slot(first), ""),
        **source_fault.opening_of(seen),
    }
    return Incident(
        cluster=node.cluster,
        node=node,
        kind=kind,
        code=code,
        device=device,
        state=Incident.State.OPEN,
        **columns,
    )


def _gpu_uuids(node: Node, groups: Sequence[FaultGroup]) -> dict[str, str]:
    """The UUIDs of the node's GPUs by PCI slot, from the inventory; the kernel log prints only slots.

    Empty if no fault needs one.
    """
    if not any(source_fault.named_slot(group.fresh[0]) and not group.fresh[0].gpu_uuid for group in groups):
        return {}
    return {slot: uuid for pci, uuid in _GPUS.rows(node=node.pk) if (slot := xid.slot(pci))}


_GPUS: Prepared[tuple[str, str]] = Prepared(
    lambda node: Gpu.objects.order_by().filter(node=node).values_list("pci", "uuid"), node=int
)
