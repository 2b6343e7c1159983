"""Records faults: one path for every source and kind of fault."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from django.db.models import F
from django.db.models.functions import Coalesce, Least

from kcover import reasons
from kcover.decisions import guards
from kcover.faults import fault, xid
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import STORM, Incident
from kcover_portal.incidents.services import (
    flapping_faults,
    joins,
    late_reports,
    new_incidents,
    occurrences,
    overflow,
    report_spans,
    source_fault,
    timed_fault,
    told_checks,
)
from kcover_portal.incidents.services.fault_columns import FaultColumns, Identity, identity_of, message_columns, worst
from kcover_portal.incidents.services.fault_groups import FaultGroup, group_of, latest_incidents
from kcover_portal.incidents.services.source_fault import SourceFault
from kcover_portal.incidents.services.timed_fault import TimedFault
from kcover_portal.lib import doorbell

MAX_CODE = 160  # characters; the length of the column
REDECIDE_AFTER = timedelta(seconds=5)  # a repeated fault is decided at most this often (the window of the Delta study)


def keep_fault(node: Node, seen: fault.Fault, *, boot_id: str, now: datetime) -> bool:
    """Adds one fault that the portal found to its incident, opening the incident if necessary.

    Returns False if all its log records were counted before. The bounds of open incidents do not apply: the portal
    finds few distinct faults, and an agent must not be able to displace them.
    """
    identity = identity_of(seen)
    group = group_of(identity, [seen], latest_incidents(node, [identity]), boot_id=boot_id)
    if group.fresh:
        _keep(node, group, boot_id=boot_id, now=now)
    return bool(group.fresh)


def keep_found(node: Node, seen: TimedFault, *, now: datetime) -> None:
    """As ``keep_fault``, in the boot that ran at the fault's own time: a test may end after the node has rebooted."""
    for boot_id, [placed] in late_reports.by_boot(node, [seen], now=now).items():
        identity = identity_of(placed)
        group = group_of(identity, [placed], latest_incidents(node, [identity]), boot_id=boot_id)
        for left in late_reports.sorted_out(node, [group], boot_id=boot_id, now=now):
            _keep(node, left, boot_id=boot_id, now=now)


def keep_faults(
    node: Node,
    seen: Sequence[fault.Fault],
    *,
    open_now: Mapping[overflow.Place, int] | None = None,
    boot_id: str,
    now: datetime,
) -> None:
    """Adds the faults of one report to the incidents of the node, opening incidents if necessary.

    ``open_now``: the number of the node's open incidents (``overflow.open_by_kind``); None: they are counted if a fault
    opens an incident. Faults beyond the bounds are counted in the node's overflow incident, with as many statements as
    one fault.

    Log records that were counted before add nothing. A thousand lines of one fault cost as many statements as one line,
    because they are added together. A caller with log records must hold the lock of its agent's row
    (``agent_reports.lock_agents``), so that reports are processed one after the other.
    """
    alike: dict[Identity, list[fault.Fault]] = {}
    for reported in seen:
        if not _is_all_clear(reported):
            alike.setdefault(identity_of(reported), []).append(reported)
    if not alike:
        return
    latest = latest_incidents(node, alike)
    groups = [group_of(identity, equal, latest, boot_id=boot_id) for identity, equal in alike.items()]
    groups = [joins.of_own_xid(node, group, boot_id=boot_id) for group in groups]
    groups = joins.joined(node, [group for group in groups if group.fresh], now=now)
    groups = late_reports.sorted_out(node, groups, boot_id=boot_id, now=now)
    if open_now is None:
        open_now = {}
        if not all(group.is_open for group in groups):
            open_now = overflow.open_by_kind([node.pk]).get(node.pk, open_now)
    beyond = overflow.exceeding(groups, open_now=open_now, limit=overflow.limit_of(node))
    own = [group for group in groups if group.identity not in beyond]
    opened = new_incidents.open_together(node, [group for group in own if not group.is_open], boot_id=boot_id, now=now)
    # Closing locks the incidents of a node in this order, too.
    for group in sorted(own, key=lambda one: one.incident.pk if one.incident is not None else sys.maxsize):
        if group.identity not in opened:
            _keep(node, group, boot_id=boot_id, now=now)
    if beyond:
        excess = [group for group in groups if group.identity in beyond]
        _keep_overflow(node, excess, boot_id=boot_id, now=now)


def _is_all_clear(seen: fault.Fault) -> bool:
    """Xid 154 back to "None", by whatever name a source has for it: nothing is wrong."""
    names = seen.names if isinstance(seen, SourceFault) else (f"{seen.kind} {seen.code}",)
    code = xid.RECOVERY_ACTION_CHANGED
    return f"xid {code}" in names and xid.is_all_clear(code, seen.message)


def _keep_overflow(node: Node, groups: Sequence[FaultGroup], *, boot_id: str, now: datetime) -> None:
    """Adds faults to the overflow incident of the node."""
    seen = overflow.in_log_order(reported for group in groups for reported in group.fresh)
    latest = latest_incidents(node, [overflow.IDENTITY])
    total = group_of(overflow.IDENTITY, seen, latest, boot_id=boot_id)
    if total.fresh:
        counted = overflow.columns(
            total.incident if total.is_open else None,
            {identity_of(reported) for reported in total.fresh},
            limit=overflow.limit_of(node),
        )
        _keep(node, total, columns=counted, boot_id=boot_id, now=now)


def _keep(
    node: Node, group: FaultGroup, *, columns: Mapping[str, Any] = MappingProxyType({}), boot_id: str, now: datetime
) -> None:
    """Adds the faults to their open incident, or opens it. ``columns``: set in both cases."""
    incident = group.incident
    if incident is None or not group.is_open:
        incident, is_new = new_incidents.open_one(node, group, columns, boot_id=boot_id, now=now)
        if is_new:
            return
        own = joins.of_own_xid(node, replace(group, incident=incident), boot_id=boot_id)
        if own.identity != group.identity:  # another process has just opened that of another Xid
            _keep(node, own, columns=columns, boot_id=boot_id, now=now)
            return
    if not _add(node, incident, group, columns, boot_id=boot_id, now=now):  # closed a moment ago
        for left in late_reports.sorted_out(node, [replace(group, incident=None)], boot_id=boot_id, now=now):
            _keep(node, left, columns=columns, boot_id=boot_id, now=now)
        return
    occurrences.keep(node, incident, group.fresh, boot_id=boot_id, now=now)
    doorbell.publish("incident", incident.pk, cluster=node.cluster.name)
    report_spans.add(node, incident, opened=False, now=now)


def _add(
    node: Node, incident: Incident, group: FaultGroup, columns: Mapping[str, Any], *, boot_id: str, now: datetime
) -> bool:
    """Adds to an open incident and schedules its decision. Returns False if it is no longer open."""
    changes, worse = _changes(node, incident, group, boot_id=boot_id, now=now)
    changes |= columns
    if timed_fault.are_late(group.fresh) and (incident.decided_at is not None or incident.boot_id != boot_id):
        doorbell.ring("rescue.nudge", node.pk)  # its verification shows what does not count
        return bool(Incident.objects.filter(pk=incident.pk, state=Incident.State.OPEN).update(**changes))
    another_boot = incident.boot_id != changes.get("boot_id", incident.boot_id)
    decided_at = incident.decided_at
    # A repeat from the past may be over, too: it does not hasten the decision.
    due = source_fault.first_decision(group.fresh, now=now)
    at_once = due <= now and (worse or another_boot or decided_at is None or now - decided_at >= REDECIDE_AFTER)
    if due <= now and not at_once and decided_at is not None:
        # It still counts for rules with a frequency; the sweep makes the later decision.
        due = decided_at + REDECIDE_AFTER
    changes["decide_at"] = Least(Coalesce(F("decide_at"), due), due)
    still = Incident.objects.filter(pk=incident.pk, state=Incident.State.OPEN)
    if "alias" in changes:
        still = still.filter(alias=incident.alias)  # another process may have named another Xid
    if not still.update(**changes):
        return False
    # If the incident was due already and is no worse now, the doorbell was rung when it became due.
    if at_once and (worse or another_boot or incident.decide_at is None or incident.decide_at > now):
        doorbell.ring("rescue.decide", incident.pk)
    return True


def _changes(
    node: Node, incident: Incident, group: FaultGroup, *, boot_id: str, now: datetime
) -> tuple[dict[str, Any], bool]:
    """The columns of an open incident that more faults change, and whether they make it worse, or name its Xid."""
    changes: dict[str, Any] = {"count": F("count") + sum(reported.count for reported in group.fresh)}
    if any(reported.sequence is not None or reported.records for reported in group.fresh):
        changes["counted_records"] = group.counted
    changes |= told_checks.columns_of(incident, group.fresh, now=now)  # a late state stands, too
    is_late = timed_fault.are_late(group.fresh)
    if is_late and incident.boot_id not in ("", boot_id):
        return changes, False  # what an earlier boot had does not say how bad the fault of this one is
    if not is_late:
        changes |= {"last_at": now, **flapping_faults.changes_of_return(incident, now=now)}
        if not late_reports.sets_back(node, incident, boot_id):
            changes["boot_id"] = boot_id
    worse = _worse_columns(incident, group)
    named = source_fault.changes_of(incident, group.fresh)
    changes |= {**(worse or {}), **named}
    # A real fault outweighs a drill: an incident with one real fault is not a drill.
    if incident.drill and not all(reported.drill for reported in group.fresh):
        changes["drill"] = False
    return changes, worse is not None or "alias" in named


def _worse_columns(incident: Incident, group: FaultGroup) -> FaultColumns | None:
    """The columns of the worst fault if it is worse than its incident; None if it is not."""
    current = _columns_of(incident)
    if worst(current, group.fresh, drill=incident.drill) is current:
        return None
    # Another reporter may have told of something worse meanwhile.
    locked = Incident.objects.select_for_update(no_key=True).get(pk=incident.pk)
    current = _columns_of(locked)
    found = worst(current, group.fresh, drill=locked.drill)
    return None if found is current else found


def _columns_of(incident: Incident) -> FaultColumns:
    return {
        "is_user_fault": incident.is_user_fault,
        "severity": incident.severity,
        "message": incident.message,
        "line_reading": incident.line_reading,
    }


def keep_storm(
    cluster: Cluster, symptom: guards.Symptom, *, nodes: Sequence[str], now: datetime
) -> tuple[Incident, bool]:
    """Finds or opens the one open incident of the symptom's storm, and adds these nodes to its scope.

    Returns it, and whether it is new. A storm is never decided: it stays open until a person closes it.
    """
    storm, opened = keep_cluster_incident(
        cluster,
        kind=STORM,
        code=_storm_code(symptom),
        because=reasons.of(f"storm_of_{symptom.trait}", value=symptom.text),
        now=now,
        trait=symptom.trait,
        symptom_kind=symptom.kind,
        symptom=symptom.value,
    )
    if not set(nodes).issubset(storm.scope):
        locked = Incident.objects.select_for_update().get(pk=storm.pk)  # a concurrent call must not lose its nodes
        scope = sorted({*locked.scope, *nodes})
        Incident.objects.filter(pk=storm.pk).update(scope=scope, count=len(scope), last_at=now)
        doorbell.publish("incident", storm.pk, cluster=cluster.name)
    return storm, opened


def _storm_code(symptom: guards.Symptom) -> str:
    """The identity of the symptom's storm, for people: programs read the fields. A long one ends with a digest."""
    code = f"{symptom.trait} {symptom.text}"
    if len(code) <= MAX_CODE:
        return code
    digest = hashlib.sha256(code.encode()).hexdigest()[:16]
    return f"{code[: MAX_CODE - len(digest) - 1]} {digest}"


def keep_cluster_incident(
    cluster: Cluster, *, kind: str, code: str, because: reasons.Reason, now: datetime, **fields: str
) -> tuple[Incident, bool]:
    """Finds or opens the one open incident of this kind and code without a node. Returns it, and whether it is new.

    ``fields``: further fields of a new one. It is never decided: it stays open until a person closes it.
    """
    return Incident.objects.get_or_create(
        cluster=cluster,
        node=None,
        kind=kind,
        code=code,
        state=Incident.State.OPEN,
        defaults={
            "severity": "fatal",
            **message_columns(str(because)),
            "because": because.to_json(),
            "opened_at": now,
            "last_at": now,
            **fields,
        },
    )
