"""Late witnesses: a source reports a fault that another witness reported some time ago.

Sources are read at intervals and catch up after an outage, so that a report may arrive after the node was rebooted, or
even after it was repaired. It is about the same fault if both witnesses saw it within JOIN_WINDOW, each by its own
clock. Such a report says nothing about the present boot, and must not start a second rescue. Alerts and conditions are
states: their time is when they began, and they may still last.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db.models import F, Q, QuerySet

from kcover import reasons
from kcover_portal import doorbell
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.incidents.services import joins, occurrences
from kcover_portal.incidents.services.fault_groups import FaultGroup
from kcover_portal.incidents.services.source_fault import witness_of
from kcover_portal.prepared import Prepared

LATE_AFTER = timedelta(seconds=5)  # from a fault's own time to its arrival; below that, joins are enough
STATES = ("alert", "condition")  # kinds of faults
VERIFIED = "incident_verified"  # the reason with which a rescue closes the faults that it repaired


def sorted_out(node: Node, groups: Sequence[FaultGroup], *, boot_id: str, now: datetime) -> list[FaultGroup]:
    """The groups without those about a fault that was repaired meanwhile; these are added to its closed incident.

    A late group about an open incident moves there, with the boot in which the other witness saw the fault. One query
    for each late group.
    """
    left = []
    for group in groups:
        found = _earlier(node, group, boot_id=boot_id, now=now)
        if found is None:
            left.append(group)
        elif found.incident.state == Incident.State.OPEN:
            moved = group if group.is_open else joins.moved(group, found.incident)
            left.append(replace(moved, boot_id=found.boot_id))
        else:
            _keep_closed(node, found, group, now=now)
    return left


def _earlier(node: Node, group: FaultGroup, *, boot_id: str, now: datetime) -> Occurrence | None:
    """The occurrence by another witness that the late group is about; None if there is none, or it is not clear.

    Each fault of the group must be near such an occurrence: a later one, in another boot, is news.
    """
    if not joins.is_from_source(group) or group.fresh[0].kind in STATES:
        return None
    if group.incident is not None and group.is_open and group.incident.boot_id == boot_id:
        return None
    times = [one.seen_at for one in group.fresh if one.seen_at is not None]
    if len(times) != len(group.fresh) or now - max(times) < LATE_AFTER:
        return None
    rows = _NEAR.rows(
        node=node.pk,
        after=min(times) - joins.JOIN_WINDOW,
        before=max(times) + joins.JOIN_WINDOW,
        seen=max(times),
        witness=witness_of(group.fresh[0]),
    )
    found = [row for row in rows if joins.is_same(group, row.incident) and _is_in_question(row.incident)]
    if len({row.incident_id for row in found}) != 1 or not all(_is_near(at, found) for at in times):
        return None
    return found[0]


def _is_near(at: datetime, rows: Sequence[Occurrence]) -> bool:
    return any(row.seen_at is not None and abs(row.seen_at - at) <= joins.JOIN_WINDOW for row in rows)


def _is_in_question(incident: Incident) -> bool:
    """A repair closes a fault for all its witnesses; a person, or a pass of one check, does not."""
    if incident.state == Incident.State.OPEN:
        return True
    why = reasons.kept(incident.closed_because)
    return why is not None and why.code == VERIFIED


def _near(node: int, after: datetime, before: datetime, seen: datetime, witness: str) -> QuerySet[Occurrence]:
    rows = Occurrence.objects.filter(incident__node=node, seen_at__gte=after, seen_at__lte=before)
    undecided = Q(incident__state=Incident.State.OPEN) | Q(incident__closed_at__gt=seen)
    return rows.filter(undecided).exclude(witness=witness).select_related("incident").order_by("-pk")


_NEAR = Prepared(_near, node=int, after=datetime, before=datetime, seen=datetime, witness=str)


def _keep_closed(node: Node, found: Occurrence, group: FaultGroup, *, now: datetime) -> None:
    """Adds the witness to the incident, which stays closed."""
    count = sum(one.count for one in group.fresh)
    Incident.objects.filter(pk=found.incident_id).update(count=F("count") + count)
    occurrences.keep(node, found.incident, group.fresh, boot_id=found.boot_id, now=now)
    doorbell.publish("incident", found.incident_id, cluster=node.cluster.name)
