"""One fault, many witnesses: reports of the same fault by an agent and by sources share one incident.

Within JOIN_WINDOW, a report joins an open incident of its node with the same code and device. A report without a
device, or by another name of the code, joins only if there is a single such incident. At least one of the two sides
must be a source: an agent distinguishes its own faults. An alert or a condition is told for as long as it lasts, often
minutes after its cause: about one device, it joins whenever that was.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from kcover.faults import fault
from kcover.faults.device import covers
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services.fault_groups import FaultGroup, group_of, latest_incidents
from kcover_portal.incidents.services.source_fault import SourceFault, witness_of
from kcover_portal.incidents.services.timed_fault import STATES
from kcover_portal.lib.prepared import Prepared

JOIN_WINDOW = timedelta(seconds=60)
_PART = re.compile(r" (?:(?:mig|link|port) |MIG-).*")


def joined(node: Node, groups: Sequence[FaultGroup], *, now: datetime) -> list[FaultGroup]:
    """The groups, with those that belong to an incident of another name moved there. One query if one may be."""
    if not any(_may_join(group) for group in groups):
        return list(groups)
    candidates = _CANDIDATES.rows(node=node.pk)
    since = now - JOIN_WINDOW
    return [_joined(group, candidates, since=since) if _may_join(group) else group for group in groups]


def _candidates(node: int) -> QuerySet[Incident]:
    return Incident.objects.filter(node=node, state=Incident.State.OPEN).exclude(kind=fault.OVERFLOW)


_CANDIDATES = Prepared(_candidates, node=int)


def _may_join(group: FaultGroup) -> bool:
    """Only a fault without an open incident of its own; agents' other faults have no second name."""
    if group.is_open:
        return False
    return group.identity[0] in fault.NUMERIC_KINDS or is_from_source(group)


def is_from_source(group: FaultGroup) -> bool:
    """Returns whether only sources report these faults, no agent."""
    return all(isinstance(seen, SourceFault) for seen in group.fresh)


def _joined(group: FaultGroup, candidates: Sequence[Incident], *, since: datetime) -> FaultGroup:
    from_source = is_from_source(group)
    near = (row for row in candidates if row.last_at >= since or _lasts(group, row))
    found = [row for row in near if (row.alias or from_source) and is_same(group, row)]
    if len(found) != 1 or _is_told_apart(group, found[0]):
        return group
    return moved(group, found[0])


def _is_told_apart(group: FaultGroup, row: Incident) -> bool:
    """Returns whether the source itself tells the fault from the one that it reported of no device or another part.

    Otherwise the end of one would be the end of both.
    """
    device = group.identity[2]
    is_one_named = bool(device) != bool(row.device)
    if not (is_one_named or _part(device) != _part(row.device)) or not is_from_source(group):
        return False
    return row.occurrences.filter(witness=witness_of(group.fresh[0])).exists()


def _part(device: str) -> str:
    """The part that the name of a device (``Device.key``) ends with; "" for a whole device."""
    found = _PART.search(device)
    return found[0] if found else ""


def _lasts(group: FaultGroup, row: Incident) -> bool:
    """Returns whether one of the two is a state, and both name one device."""
    kind, _, device = group.identity
    return (kind in STATES or row.kind in STATES) and device == row.device != ""


def moved(group: FaultGroup, row: Incident) -> FaultGroup:
    """The group as a part of the open incident; unchanged if another incident has the precise name already."""
    if not _made_precise(row, group):
        return group
    return replace(group, identity=(row.kind, row.code, row.device), incident=row)


def is_same(group: FaultGroup, row: Incident) -> bool:
    """Returns whether the faults may be those of the incident, by the names of the code and by the device."""
    kind, code, device = group.identity
    names = {f"{kind} {code}"}.union(*(seen.names for seen in group.fresh if isinstance(seen, SourceFault)))
    if names.isdisjoint((f"{row.kind} {row.code}", row.alias)) or is_of_another_xid(group, row):
        return False
    uuids = {seen.gpu_uuid for seen in group.fresh if seen.gpu_uuid}
    # A part and its whole: the kernel names the GPU, other monitors its link or its MIG device.
    fits = covers((row.device,), (device,)) or covers((device,), (row.device,))
    return not device or not row.device or fits or row.gpu_uuid in uuids


def is_of_another_xid(group: FaultGroup, row: Incident) -> bool:
    """Returns whether both name an Xid, and not the same: one alert or condition may tell several, one by one."""
    aliases = {seen.alias for seen in group.fresh if isinstance(seen, SourceFault)}
    ours = row.alias if row.kind not in fault.NUMERIC_KINDS else f"{row.kind} {row.code}"
    return ours.startswith("xid ") and bool(aliases) and all(one.startswith("xid ") and one != ours for one in aliases)


def of_own_xid(node: Node, group: FaultGroup, *, boot_id: str) -> FaultGroup:
    """The group under a code of its own, if the open incident of its name is that of another Xid.

    One more query for such a group.
    """
    kind, code, device = group.identity
    row = group.incident if group.is_open and kind in STATES else None
    if row is None or not is_of_another_xid(group, row):
        return group
    [number, *_] = (seen.alias.removeprefix("xid ") for seen in group.fresh if isinstance(seen, SourceFault))
    identity = kind, f"{code}/{number}", device
    return group_of(identity, group.fresh, latest_incidents(node, [identity]), boot_id=boot_id)


def _made_precise(row: Incident, group: FaultGroup) -> bool:
    """Gives the incident the number and device that the group knows and it lacks. Returns False if it is taken.

    The numbers are what rules and the catalog know best.
    """
    kind, code, device = group.identity
    changes = {}
    if kind in fault.NUMERIC_KINDS and row.kind not in fault.NUMERIC_KINDS:
        changes = {"kind": kind, "code": code}
    if device and not row.device:
        changes["device"] = device
    if not changes:
        return True
    try:
        with transaction.atomic():
            if not Incident.objects.filter(pk=row.pk, state=Incident.State.OPEN).update(**changes):
                return False
    except IntegrityError:
        return False
    for column, value in changes.items():
        setattr(row, column, value)
    return True
