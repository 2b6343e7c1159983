"""Late reports: about a boot that is over, or from before a repair that was verified since.

Sources are read at intervals and catch up after an outage, and a test is judged at its end. A report belongs to the
boot that ran at its own time (``kcover.decisions.boots``). What it tells of an earlier boot stays with the incident of
that boot, open or closed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from django.db.models import F, Q, QuerySet

from kcover import reasons
from kcover.decisions import boots
from kcover.values import moments
from kcover_portal.fleet.models import Node
from kcover_portal.fleet.queries.boots import NodeBoots, boots_of
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.incidents.queries import is_by_person
from kcover_portal.incidents.services import doubtful_states, joins, occurrences
from kcover_portal.incidents.services.fault_groups import FaultGroup
from kcover_portal.incidents.services.source_fault import witness_of
from kcover_portal.incidents.services.timed_fault import TimedFault, are_late, is_in_doubt
from kcover_portal.lib import doorbell
from kcover_portal.lib.prepared import Prepared

Timed = TypeVar("Timed", bound=TimedFault)
VERIFIED = "incident_verified"  # the reason with which a rescue closes the faults that it repaired
REPLACED = ("another_machine", "name_has_another_machine")  # the faults left with their machine
READ_NOW = timedelta(seconds=1)
MAX_CANDIDATES = 200  # incidents of one node, the newest


def by_boot(node: Node, seen: Iterable[Timed], *, now: datetime) -> dict[str, list[Timed]]:
    """The faults by the boot in which they happened; those of a boot that is over are marked as late."""
    known = boots_of(node)
    found: dict[str, list[Timed]] = {}
    for one in seen:
        boot, placed = _placed(one, node, known, now=now)
        found.setdefault(boot or node.boot_id, []).append(placed)
    return found


def _placed(one: Timed, node: Node, known: NodeBoots, *, now: datetime) -> tuple[str, Timed]:
    earliest = min(one.earliest or one.seen_at or now, now)
    if one.by_node_clock:
        # One that is behind moves no fault to the later boot.
        earliest = moments.before(earliest, max(known.clock_ahead, timedelta()))
    begun = boots.kernel_begun(earliest, one.uptime) if one.uptime is not None else None
    takes = timedelta(seconds=node.cluster.ready_within)
    boot = boots.boot_of(known.boots, earliest=earliest, begun=begun, takes=takes)
    placed = replace(one, earliest=earliest)
    if boot is None or boot is known.boots[0]:
        return boot.id if boot else "", placed
    end = known.boots[known.boots.index(boot) - 1].since
    if begun is not None and end is not None:  # its time may be that of a collector, which read it in a later boot
        placed = replace(placed, earliest=min(earliest, end), seen_at=min(one.seen_at or end, end))
    ahead = known.clock_ahead if one.by_node_clock else timedelta()
    return boot.id, doubtful_states.in_doubt(_late(placed, now=now), known.boots[0], clock_ahead=ahead, now=now)


def _late(one: Timed, *, now: datetime) -> Timed:
    """The fault with the time since it happened; of a value that was read now, since it may have happened."""
    is_read_now = one.seen_at is None or now - one.seen_at < READ_NOW or not witness_of(one)  # an agent's own clock
    at = one.earliest if is_read_now else one.seen_at
    return replace(one, late_seconds=max(0.0, (now - (at or now)).total_seconds()))


def sets_back(node: Node, incident: Incident, boot_id: str) -> bool:
    """Returns whether an occurrence of an earlier boot arrives after one of a later boot.

    Such an occurrence does not set the incident's boot back (invariant 15). The order of boots is known from the watch,
    or from what was delivered before.
    """
    if boot_id == incident.boot_id or not incident.boot_id:
        return False
    return boot_id in node.past_boots or (
        boot_id != node.boot_id and incident.occurrences.filter(boot_id=boot_id).exists()
    )


def sorted_out(node: Node, groups: Sequence[FaultGroup], *, boot_id: str, now: datetime) -> list[FaultGroup]:
    """The groups without those about a fault that was repaired meanwhile; these are added to its closed incident.

    A late group about an open incident moves there. One or two queries for each late group, and for each time since
    which others may have happened.
    """
    left = []
    read: dict[datetime, list[Incident]] = {}
    for group in groups:
        incident, waits_until = _earlier(node, group, read, boot_id=boot_id)
        if incident is None:
            left.append(group if waits_until is None else _waiting(group, waits_until))
            continue
        read.clear()  # the incident changes
        if incident.state == Incident.State.OPEN:
            left.append(joins.moved(group, incident))
        else:
            _keep_closed(node, incident, group, boot_id=boot_id, now=now)
    return left


def _earlier(
    node: Node, group: FaultGroup, read: dict[datetime, list[Incident]], *, boot_id: str
) -> tuple[Incident | None, datetime | None]:
    """The incident that the group belongs to, if it is not the open one of its own name. ``read``: rows by since when.

    Without one, until when a state may be of before a repair in this boot: if it ends by then, it was.
    """
    since = [one.earliest for one in group.fresh if isinstance(one, TimedFault) and one.earliest is not None]
    if len(since) != len(group.fresh) or (group.is_open and not are_late(group.fresh)):
        return None, None
    if min(since) not in read:
        read[min(since)] = list(_SINCE.rows(node=node.pk, since=min(since)))
    found = [row for row in read[min(since)] if joins.is_same(group, row)]
    if any(map(is_in_doubt, group.fresh)):  # what may be of the present boot is not told away
        found = [row for row in found if row.state == Incident.State.OPEN]
    if are_late(group.fresh):
        return _of_boot([row for row in found if _is_in_question(row)], boot_id), None
    closed = [row for row in found if row.state == Incident.State.CLOSED and _is_in_question(row)]
    incident = next((row for row in closed if _is_from_before(group, row, boot_id=boot_id)), None)
    ends = [_end_of_doubt(group, row) for row in closed if row.repaired_at is not None]
    return incident, max((end for end in ends if end is not None), default=None)


def _end_of_doubt(group: FaultGroup, repaired: Incident) -> datetime | None:
    """Until when the states of the group may be those that the repair ended; None if they cannot be."""
    at = repaired.repaired_at
    doubts = [one.doubt for one in group.fresh if isinstance(one, TimedFault) and one.doubt is not None]
    if at is None or len(doubts) != len(group.fresh):
        return None
    return at + max(doubts)


def _waiting(group: FaultGroup, until: datetime) -> FaultGroup:
    fresh = [replace(one, decide_from=until) if isinstance(one, TimedFault) else one for one in group.fresh]
    return replace(group, fresh=fresh)


def _is_from_before(group: FaultGroup, closed: Incident, *, boot_id: str) -> bool:
    """Returns whether the faults are those that the rescue has closed.

    Of a boot that the incident never occurred in, none is. Where nothing was repaired, a report is of what was seen
    while the incident was open by its own time. A value without a time is, too, if it changed between two readings and
    the incident occurred between them; a state that lasts without a time may still last.
    """
    seen = [one for one in group.fresh if isinstance(one, TimedFault)]
    if _is_closed_by_person(closed) and any(one.doubt is not None for one in seen):  # a state: it may yet last
        return False
    if closed.boot_id not in ("", boot_id) and not closed.occurrences.filter(boot_id=boot_id).exists():
        return False
    if closed.repaired_at is not None:
        return all(at is not None and at < closed.repaired_at for at in map(_own_time, seen))
    return all(at is not None and at <= closed.last_at for at in map(_own_time, seen))


def _own_time(one: TimedFault) -> datetime | None:
    """When the fault happened: a moment at the earliest, a state when it began by its own time."""
    return one.earliest if one.doubt is None else one.seen_at


def _is_in_question(incident: Incident) -> bool:
    """A repair, a person or another machine ends a fault for all its witnesses; a pass of one check does not."""
    is_over = _closing(incident) in (VERIFIED, *REPLACED) or _is_closed_by_person(incident)
    return incident.state == Incident.State.OPEN or is_over


def _is_closed_by_person(incident: Incident) -> bool:
    return is_by_person(_closing(incident))


def _closing(incident: Incident) -> str:
    """The code of the reason why it was closed."""
    why = reasons.kept(incident.closed_because)
    return why.code if why is not None else ""


def _of_boot(rows: Sequence[Incident], boot_id: str) -> Incident | None:
    """The incident that occurred in the boot, else the newest one."""
    if len(rows) > 1:
        seen = Occurrence.objects.filter(incident__in=rows, boot_id=boot_id).values_list("incident", flat=True)
        known = set(seen.order_by())
        rows = [row for row in rows if row.pk in known] or rows
    return next(iter(rows), None)


def _since(node: int, since: datetime) -> QuerySet[Incident]:
    rows = Incident.objects.filter(Q(state=Incident.State.OPEN) | Q(closed_at__gt=since), node=node)
    return rows.order_by("-pk")[:MAX_CANDIDATES]


_SINCE = Prepared(_since, node=int, since=datetime)


def _keep_closed(node: Node, incident: Incident, group: FaultGroup, *, boot_id: str, now: datetime) -> None:
    """Adds the reports to the incident, which stays closed."""
    late = [_late(one, now=now) for one in group.fresh if isinstance(one, TimedFault)]
    Incident.objects.filter(pk=incident.pk).update(count=F("count") + sum(one.count for one in late))
    occurrences.keep(node, incident, late, boot_id=boot_id, now=now)
    doorbell.publish("incident", incident.pk, cluster=node.cluster.name)
