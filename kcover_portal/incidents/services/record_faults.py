"""Records faults: one path for every source and kind of fault."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Case, DateTimeField, F, Value, When
from django.db.models.functions import Coalesce, Least

from kcover import marks
from kcover.faults import catalog, fault, nvlink5, xid
from kcover_portal import doorbell
from kcover_portal.fleet.models import Cluster, Gpu, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import dedup, occurrences

REDECIDE_AFTER = timedelta(seconds=5)  # a repeated fault is decided at most this often (the window of the Delta study)


def keep_fault(node: Node, seen: fault.Fault, *, boot_id: str, now: datetime) -> bool:
    """Adds one fault to its incident, opening the incident if necessary.

    Returns False if all its log records were counted before.
    """
    return not keep_faults(node, [seen], boot_id=boot_id, now=now)


def keep_faults(node: Node, seen: Sequence[fault.Fault], *, boot_id: str, now: datetime) -> int:
    """Adds the faults of one report to the incidents of the node, opening incidents if necessary.

    Returns how many of the faults had only log records that were counted before. A thousand lines of one fault cost as
    many statements as one line, because they are added together. A caller with log records must hold the lock of its
    agent's row (``agent_reports.lock_agents``), so that reports are processed one after the other.
    """
    alike: dict[tuple[str, str, str], list[fault.Fault]] = {}
    for occurrence in seen:
        # Xid 154 back to "None" is an all-clear: nothing is wrong (semantics 0.12)
        if occurrence.kind != "xid" or not xid.is_all_clear(occurrence.code, occurrence.message):
            alike.setdefault((occurrence.kind, str(occurrence.code), _device(occurrence)), []).append(occurrence)
    return sum(_keep(node, key, equal_faults, boot_id=boot_id, now=now) for key, equal_faults in alike.items())


def _keep(node: Node, key: tuple[str, str, str], seen: Sequence[fault.Fault], *, boot_id: str, now: datetime) -> int:
    """Adds occurrences of one fault (its kind, code and device). Returns how many of them were counted before."""
    kind, code, device = key
    # An agent that lost its position reads the log of its boot again. Old lines are not new faults, even if their
    # incident was closed meanwhile.
    incident = Incident.objects.filter(node=node, kind=kind, code=code, device=device).order_by("-pk").first()
    fresh, counted = _new_occurrences(incident.counted_records if incident else [], seen, boot_id=boot_id)
    if not fresh:
        return len(seen)
    opened = False
    if incident is None or incident.state != Incident.State.OPEN:
        incident, opened = _open(
            node, key, _opening(node, fresh, boot_id=boot_id, now=now) | {"counted_records": counted}
        )
    if opened:
        doorbell.ring("rescue.decide", incident.pk)
    elif not _add(node, incident, fresh, counted, boot_id=boot_id, now=now):
        return _keep(node, key, seen, boot_id=boot_id, now=now)  # closed a moment ago: open a new incident
    occurrences.keep(node, incident, fresh, new=opened, boot_id=boot_id, now=now)
    doorbell.publish("incident", incident.pk, cluster=node.cluster.name)
    return len(seen) - len(fresh)


def _open(node: Node, identity: tuple[str, str, str], defaults: Mapping[str, Any]) -> tuple[Incident, bool]:
    """Finds or opens the one open incident of this fault.

    Returns it, and whether it is new. Of two concurrent callers, one opens it.
    """
    kind, code, device = identity
    columns = {"node": node, "kind": kind, "code": code, "device": device, "state": Incident.State.OPEN}
    try:
        with transaction.atomic():
            return Incident.objects.create(**columns, **defaults), True
    except IntegrityError:
        return Incident.objects.get(**columns), False


def _new_occurrences(
    counted: dedup.Counted, seen: Sequence[fault.Fault], *, boot_id: str
) -> tuple[list[fault.Fault], dedup.Counted]:
    """The faults with new lines, each with the number of its new lines; and the counted records including them."""
    fresh = []
    for occurrence in seen:
        count, counted = dedup.count(counted, occurrence, boot_id=boot_id)
        if count:
            fresh.append(replace(occurrence, count=count))
    return fresh, counted


def _add(
    node: Node, incident: Incident, fresh: Sequence[fault.Fault], counted: dedup.Counted, *, boot_id: str, now: datetime
) -> bool:
    """Adds to an open incident and schedules its decision. Returns False if it is no longer open."""
    current = {"is_user_fault": incident.is_user_fault, "severity": incident.severity}
    reading = _worst(current, fresh, drill=incident.drill)
    worse = reading is not current
    changes: dict[str, Any] = {"count": F("count") + sum(occurrence.count for occurrence in fresh), "last_at": now}
    if worse:
        changes |= reading
    if not _is_late(node, incident, boot_id):
        changes["boot_id"] = boot_id
    if any(occurrence.sequence is not None or occurrence.records for occurrence in fresh):
        changes["counted_records"] = counted
    # A real occurrence outweighs a drill: an incident with one real occurrence is not a drill.
    if incident.drill and not all(occurrence.drill for occurrence in fresh):
        changes["drill"] = False
    another_boot = incident.boot_id != changes.get("boot_id", incident.boot_id)
    decided_at = incident.decided_at
    at_once = worse or another_boot or decided_at is None or now - decided_at >= REDECIDE_AFTER
    # Otherwise it still counts for rules with a frequency; the sweep makes the later decision.
    due = now if decided_at is None or at_once else decided_at + REDECIDE_AFTER
    changes["decide_at"] = Least(Coalesce(F("decide_at"), due), due)
    if not Incident.objects.filter(pk=incident.pk, state=Incident.State.OPEN).update(**changes):
        return False
    # If the incident was due already and is no worse now, the doorbell was rung when it became due.
    if at_once and (worse or another_boot or incident.decide_at is None or incident.decide_at > now):
        doorbell.ring("rescue.decide", incident.pk)
    return True


def _device(seen: fault.Fault) -> str:
    """The device's key within its node: the slot if it was printed, so that a replaced GPU keeps its incident."""
    if seen.pci:
        return xid.slot(seen.pci) or seen.pci.lower()
    return seen.gpu_uuid or ""


def _is_late(node: Node, incident: Incident, boot_id: str) -> bool:
    """Returns whether an occurrence of an earlier boot arrives after one of a later boot.

    Such an occurrence does not set the incident's boot back (invariant 15). The order of boots is known from the watch,
    or from what was delivered before.
    """
    if boot_id == incident.boot_id or not incident.boot_id:
        return False
    return boot_id in node.past_boots or (
        boot_id != node.boot_id and incident.occurrences.filter(boot_id=boot_id).exists()
    )


def _worst(current: dict[str, Any], seen: Sequence[fault.Fault], *, drill: bool) -> dict[str, Any]:
    """The worst reading of these faults and ``current``; ``current`` itself if no fault is worse.

    Of one code, some faults are fatal and some are caused by a user's program. A drill does not change the reading of
    real occurrences.
    """
    for occurrence in seen:
        if occurrence.kind in fault.NUMERIC_KINDS and (drill or not occurrence.drill):
            reading = _reading(occurrence)
            if _weight(reading) > _weight(current):
                current = reading
        drill = drill and occurrence.drill
    return current


def _weight(reading: Mapping[str, Any]) -> tuple[bool, int]:
    severity = reading["severity"]
    return not reading["is_user_fault"], catalog.SEVERITIES.index(severity) if severity in catalog.SEVERITIES else -1


def _reading(seen: fault.Fault) -> dict[str, Any]:
    """The severity, cause and message according to the log line itself."""
    occurrence = xid.parse_line(seen.message)
    cause = occurrence.cause if occurrence and seen.kind == "xid" else None
    fatal = nvlink5.is_fatal(occurrence)
    numeric = int(seen.code) if seen.kind in fault.NUMERIC_KINDS else None
    return {
        "severity": catalog.severity(seen.kind, numeric, fatal=fatal) if numeric is not None else "warning",
        "is_user_fault": numeric is not None and catalog.is_user_fault(seen.kind, numeric, cause=cause, fatal=fatal),
        "cause": cause,
        "message": seen.message,
    }


def _opening(node: Node, seen: Sequence[fault.Fault], *, boot_id: str, now: datetime) -> dict[str, Any]:
    first, *others = seen
    return {
        "cluster": node.cluster,
        "gpu_uuid": first.gpu_uuid or _uuid_at(node, first.pci),
        **_worst(_reading(first), others, drill=first.drill),
        "drill": all(occurrence.drill for occurrence in seen),
        "boot_id": boot_id,
        "count": sum(occurrence.count for occurrence in seen),
        "opened_at": now,
        "last_at": now,
        "decide_at": now,
    }


def _uuid_at(node: Node, pci: str | None) -> str:
    """The UUID of the GPU in that slot, from the node's inventory; the kernel log prints only slots."""
    if not pci:
        return ""
    slot = xid.slot(pci)
    devices = Gpu.objects.filter(node=node).values_list("pci", "uuid")
    return next((uuid for at, uuid in devices if slot and xid.slot(at) == slot), "")


def keep_storm(cluster: Cluster, *, kind: str, code: str, nodes: Sequence[str], now: datetime) -> tuple[Incident, bool]:
    """Finds or opens the one open incident of a storm, and adds these nodes to its scope.

    Returns it, and whether it is new.

    A storm is never decided: it stays open until a person closes it.
    """
    storm, opened = Incident.objects.get_or_create(
        cluster=cluster,
        node=None,
        kind=kind,
        code=code,
        state=Incident.State.OPEN,
        defaults={
            "severity": "critical",
            "message": f"one symptom on many nodes at once, {code}: look for their common cause",
            "opened_at": now,
            "last_at": now,
        },
    )
    if not set(nodes).issubset(storm.scope):
        locked = Incident.objects.select_for_update().get(pk=storm.pk)  # a concurrent call must not lose its nodes
        scope = sorted({*locked.scope, *nodes})
        Incident.objects.filter(pk=storm.pk).update(scope=scope, count=len(scope), last_at=now)
        doorbell.publish("incident", storm.pk, cluster=cluster.name)
    return storm, opened


def mark_decided(incident: Incident, *, labels: Mapping[str, str], now: datetime, again_at: datetime | None) -> None:
    """Stores that the incident was decided as read, on a node with these labels.

    An occurrence that arrived meanwhile keeps its own due time.
    """
    unchanged = When(decide_at__lte=now, last_at=incident.last_at, then=Value(again_at, output_field=DateTimeField()))
    Incident.objects.filter(pk=incident.pk).update(
        decided_at=now, decided_labels=_digest(labels), decide_at=Case(unchanged, default=F("decide_at"))
    )


def redecide_if_labels_changed(node: Node, *, now: datetime) -> None:
    """Schedules a new decision of incidents that were decided when the node had other labels.

    A removed exclusion, or a changed label that a rule selects by, may change the answer just as a new occurrence may.
    """
    rows = Incident.objects.filter(node=node, state=Incident.State.OPEN, decide_at=None, decided_at__isnull=False)
    other = rows.exclude(decided_labels__in=("", _digest(node.labels)))
    for pk in other.values_list("pk", flat=True):
        if rows.filter(pk=pk).update(decide_at=now):
            doorbell.ring("rescue.decide", pk)


def _digest(labels: Mapping[str, str]) -> str:
    """A digest of the labels, without the portal's own state label, by which no rule selects."""
    relevant = sorted((key, value) for key, value in labels.items() if key != marks.STATE_LABEL)
    return hashlib.sha256(json.dumps(relevant).encode()).hexdigest()[:16]


def redecide_cluster(cluster: Cluster, *, seen_since: datetime, now: datetime) -> int:
    """Schedules new decisions in a cluster whose rules, mode or decider changed. Returns how many.

    ``seen_since``: incidents that last occurred before this have expired (invariant 32).
    """
    rows = Incident.objects.filter(cluster=cluster, state=Incident.State.OPEN, decide_at=None, last_at__gte=seen_since)
    return rows.exclude(node=None).exclude(decided_at=None).update(decide_at=now)


def redecide_node(node: Node, *, now: datetime) -> None:
    """Schedules new decisions of all open incidents of the node, after what held them back has gone."""
    rows = Incident.objects.filter(node=node, state=Incident.State.OPEN)
    rows.update(decide_at=now)
    for pk in rows.values_list("pk", flat=True):
        doorbell.ring("rescue.decide", pk)
