"""Records the parts of nodes whose inventory changed: ends placements, begins others.

Runs in workers, one transaction for each node, outside of the transactions that store reports.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from django.db import IntegrityError, transaction

from kcover.machines import parts
from kcover.machines.parts import Seen
from kcover_portal.config import log_context
from kcover_portal.fleet.models import Hardware
from kcover_portal.lib import doorbell
from kcover_portal.parts import queries
from kcover_portal.parts.models import Part, Placement
from kcover_portal.parts.services import flags

log = logging.getLogger(__name__)
MAX_NODES = 500  # in one sweep
SWEEP_SECONDS = 2.0  # of each 5 s: thousands of new nodes must not keep a worker from decisions
Key = tuple[str, str, str]  # kind, serial number, slot


class _Outdated(Exception):
    """The inventory changed meanwhile. The next sweep records the newer one."""


def record_changed(*, now: datetime, monotonic: Callable[[], float] = time.monotonic) -> int:
    """Records the parts of nodes whose inventory changed, for SWEEP_SECONDS. Returns the number of nodes.

    Placements of deleted nodes end first, so that a new node of the same name can have the part.
    """
    queries.orphaned().update(until=now)
    done, end = 0, monotonic() + SWEEP_SECONDS
    for hardware in queries.unrecorded().select_related("node__cluster").order_by("changed_at", "pk")[:MAX_NODES]:
        if monotonic() >= end:
            break
        with log_context.bound(cluster=hardware.node.cluster.name, node=hardware.node.name):
            done += _is_recorded(hardware, now=now)
    return done


def _is_recorded(hardware: Hardware, *, now: datetime) -> bool:
    try:
        _record(hardware, now=now)
    except _Outdated:
        log.info("parts of node %s: the inventory changed meanwhile", hardware.node.name)
        return False
    except IntegrityError:  # one node must not keep the others from being recorded
        log.exception("parts of node %s: not recorded; the next sweep tries again", hardware.node.name)
        return False
    return True


@transaction.atomic
def _record(hardware: Hardware, *, now: datetime) -> None:
    seen = {one.key: one for one in queries.inventory_of(hardware)}
    present = queries.present_in(hardware.node)
    if seen.keys() != present.keys():
        _place(hardware, seen, present, now=now)
    # Last, because a report may wait for this row. Zero rows: this inventory is no longer the latest.
    rows = Hardware.objects.filter(pk=hardware.pk, unrecorded=True, changed_at=hardware.changed_at)
    if not rows.update(unrecorded=False):
        raise _Outdated


def _place(hardware: Hardware, seen: Mapping[Key, Seen], present: Mapping[Key, int], *, now: datetime) -> None:
    node, at = hardware.node, hardware.changed_at
    fresh = sorted(seen.keys() - present.keys())
    if len(fresh) + (queries.new_today(node.pk, now=now) if fresh else 0) > parts.MAX_NEW_A_DAY:
        log.warning("node %s reports too many new parts in a day: %d are left out", node.name, len(fresh))
        fresh = []
    rows = _locked_parts([seen[key] for key in fresh], among=present.values(), at=at)
    present = queries.present_in(node)  # again: the locks keep others from changing it
    gone = [(kind, serial, slot) for kind, serial, slot in present if (kind, serial, slot) not in seen]
    for kind, serial, slot in gone:
        open_ = Placement.objects.filter(node=node, part__kind=kind, part__serial=serial, slot=slot, until=None)
        open_.update(until=at)
    _begin_all([(rows[key[:2]], seen[key]) for key in fresh if key not in present], hardware)
    _forget_oldest(node.pk)
    doorbell.publish("part", node.pk, cluster=node.cluster.name)


def _locked_parts(fresh: Collection[Seen], *, among: Collection[int], at: datetime) -> Mapping[tuple[str, str], Part]:
    """The rows of the parts, locked in the order of their keys with the present ones."""
    made = [Part(kind=one.kind, serial=one.serial, model=one.model, first_seen_at=at) for one in fresh]
    Part.objects.bulk_create(made, ignore_conflicts=True)
    wanted = {(one.kind.value, one.serial) for one in fresh}
    keys = Part.objects.filter(serial__in=[serial for _kind, serial in wanted]).values_list("pk", "kind", "serial")
    pks = {pk for pk, kind, serial in keys if (kind, serial) in wanted} | set(among)
    return {(row.kind, row.serial): row for row in Part.objects.select_for_update().filter(pk__in=pks).order_by("pk")}


def _begin_all(found: Sequence[tuple[Part, Seen]], hardware: Hardware) -> None:
    """Begins the placements of locked parts. Parts that nobody knows take a few statements together."""
    if not found:
        return
    histories = queries.histories([part for part, _ in found])
    known = histories.keys() | queries.repaired([part for part, _ in found])
    new = [_placement(part, seen, hardware) for part, seen in found if part.pk not in known]
    Placement.objects.bulk_create(new)
    for part, seen in found:
        if part.pk in known:
            _begin(part, seen, hardware, histories.get(part.pk, []))


def _begin(part: Part, seen: Seen, hardware: Hardware, history: Sequence[Placement]) -> None:
    """Begins the placement of a locked part, or continues one that was interrupted."""
    node, at = hardware.node, hardware.changed_at
    others = [row for row in history if row.ended_at is None and row.node_id != node.pk]
    last = history[0] if history else None
    if last is not None and last.node_id == node.pk and last.slot == seen.slot and not others:
        Placement.objects.filter(pk=last.pk).update(until=None, device=seen.device)
        return
    if len(others) >= parts.MAX_OPEN:
        log.warning("node %s: %d nodes report %s, which identifies nothing", node.name, len(others), part)
        return
    row = _placement(part, seen, hardware, doubt=Placement.Doubt.CLAIMED if others else Placement.Doubt.NONE)
    row.save(force_insert=True)
    for gone in history:
        if gone.until is None and gone.ended_at is not None:  # its node left the cluster
            Placement.objects.filter(pk=gone.pk, until=None).update(until=gone.ended_at)
    if not others:
        flags.set_flags(row, flags.returned(row, history), now=at)


def _placement(part: Part, seen: Seen, hardware: Hardware, *, doubt: str = Placement.Doubt.NONE) -> Placement:
    node = hardware.node
    return Placement(
        part=part,
        cluster=node.cluster,
        node=node,
        node_name=node.name,
        slot=seen.slot,
        device=seen.device,
        since=hardware.changed_at,
        doubt=doubt,
    )


def _forget_oldest(node: int) -> None:
    """Bounds the placements of a node: one that invents serial numbers forgets its own history only."""
    rows = Placement.objects.filter(node=node)
    if rows.count() > parts.MAX_OF_NODE:
        kept = rows.filter(until__isnull=False).order_by("-until", "-pk").values_list("pk", flat=True)
        Placement.objects.filter(pk__in=list(kept[parts.MAX_OF_NODE // 2 :])).delete()
