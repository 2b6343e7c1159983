"""States of which it is open whether they are of the present boot: an alert or a condition that began close after it.

Such a state neither reboots a node nor releases it. If it ends, it was one of the boot before. If it still stands when
the doubt is over, it is evidence of the boot that it was in doubt about. One that nobody has stated in this boot is
waited for, and never is.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import QuerySet

from kcover.decisions.boots import Boot
from kcover.faults.device import Device, covers
from kcover.sources.observation import is_of_check
from kcover.values import moments
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.incidents.queries import seen
from kcover_portal.incidents.services import inventory
from kcover_portal.incidents.services.fault_columns import identity_of
from kcover_portal.incidents.services.timed_fault import LASTING, TimedFault
from kcover_portal.lib import doorbell
from kcover_portal.lib.prepared import Prepared

Timed = TypeVar("Timed", bound=TimedFault)
END_WITHIN = timedelta(seconds=60)  # a source is read once a minute, so it tells of an end by then


def in_doubt(one: Timed, boot: Boot, *, clock_ahead: timedelta, now: datetime) -> Timed:
    """The fault of the boot before ``boot``, marked if it is a state whose own time is in ``boot``."""
    begun = boot.after or boot.since
    if one.doubt is None or one.seen_at is None or boot.since is None or begun is None:
        return one
    if moments.before(one.seen_at, clock_ahead) < begun:
        return one
    until = max(moments.before(boot.since, -one.doubt - abs(clock_ahead)), now + END_WITHIN)
    return replace(one, doubt_until=until, doubt_boot=boot.id)


def doubt_of(told: Any) -> dict[str, Any]:
    """The columns by which the end of a state in doubt is recognized, and its boot; {} without doubt."""
    if not isinstance(told, TimedFault) or told.doubt_until is None:
        return {}
    kind, code, device = identity_of(told)
    found = {"boot": told.doubt_boot, "kind": kind, "code": code, "device": device, "uuid": told.gpu_uuid or ""}
    return found | ({"unheard": True} if told.unheard else {})


def end(node: Node, witness: str, *, kind: str, check: str, device: Device, still: Iterable[Device]) -> None:
    """The source says that the check of the device passed: what was in doubt was of the boot before.

    ``still``: other devices about which it yet tells. One query for a kind that lasts.
    """
    if kind not in LASTING:
        return
    others = {one.key for one in still}
    told = [
        row
        for row in _OF_NODE.rows(node=node.pk)
        if row.witness == witness
        and row.doubt["kind"] == kind
        and is_of_check(row.doubt["code"], check)
        and row.doubt["device"] not in others
    ]
    names = inventory.names_of(device, inventory.known_gpus(node)) if told else ()
    over = [row.pk for row in told if covers(names, (row.doubt["device"], row.doubt["uuid"]))]
    if over:
        Occurrence.objects.filter(pk__in=over).update(doubt_until=None)


_OF_NODE = Prepared(lambda node: Occurrence.objects.filter(node=node, doubt_until__isnull=False), node=int)


def settle(*, now: datetime, node: Node | None = None) -> None:
    """What still stands when its doubt is over is of the boot in doubt. ``node``: only there; None: everywhere.

    Incidents that people or a repair have closed meanwhile stay closed.
    """
    for row in _DUE.rows(now=now) if node is None else _DUE_OF_NODE.rows(now=now, node=node.pk):
        with transaction.atomic():
            _settle(row, now=now)


def _due(now: datetime, **of: int) -> QuerySet[Occurrence]:
    return seen.doubt_is_over(now=now).filter(**of).order_by("node_id", "incident_id", "pk")


_DUE = Prepared(_due, now=datetime)
_DUE_OF_NODE = Prepared(_due, now=datetime, node=int)


def _settle(row: Occurrence, *, now: datetime) -> None:
    # The incident first, as reports lock it. Closing waits for it, or is seen here.
    incident = Incident.objects.select_for_update(no_key=True).select_related(None).get(pk=row.incident_id)
    boot = row.doubt["boot"]
    if row.doubt.get("unheard"):
        Occurrence.objects.filter(pk=row.pk, doubt_until=row.doubt_until).update(doubt_until=None)
        doorbell.ring("rescue.nudge", row.node_id)
        return
    still = Occurrence.objects.filter(pk=row.pk, doubt_until=row.doubt_until)
    seen_now = {"boot_id": boot, "late_seconds": None, "doubt_until": None, "earliest_at": now}  # it still stands
    if not still.update(**seen_now) or incident.state != Incident.State.OPEN:
        return
    changes: dict[str, Any] = {"last_at": now, "decide_at": now}
    if incident.node_id is not None and Node.objects.filter(pk=incident.node_id, boot_id=boot).exists():
        changes["boot_id"] = boot
    Incident.objects.filter(pk=incident.pk).update(**changes)
    doorbell.ring("rescue.decide", incident.pk)
    doorbell.ring("rescue.nudge", row.node_id)
