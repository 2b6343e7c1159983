"""Keeping faults: one path for every source, whatever the fault."""

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

REDECIDE_AFTER = timedelta(seconds=5)  # a repeated fault asks for judgement at most this often (Delta study's window)


def keep_fault(node: Node, seen: fault.Fault, *, boot_id: str, now: datetime) -> bool:
    """Adds one fault to its incident, opening it if need be; False if every log record of it was counted before."""
    return not keep_faults(node, [seen], boot_id=boot_id, now=now)


def keep_faults(node: Node, seen: Sequence[fault.Fault], *, boot_id: str, now: datetime) -> int:
    """Adds what one report tells of a node to the incidents, opening them if need be; returns how many of these faults
    were counted before, in each of their log records.

    A thousand lines of one fault cost as many statements as one: they are added together. Who tells of log records does
    so under the lock of its agent's row (``hearing.hear``), one report after the other.
    """
    alike: dict[tuple[str, str, str], list[fault.Fault]] = {}
    for one in seen:
        # Xid 154 back to "None" takes a recovery action back: nothing is wrong (semantics 0.12)
        if one.kind != "xid" or not xid.is_all_clear(one.code, one.message):
            alike.setdefault((one.kind, str(one.code), _device(one)), []).append(one)
    return sum(_keep(node, which, some, boot_id=boot_id, now=now) for which, some in alike.items())


def _keep(node: Node, which: tuple[str, str, str], seen: Sequence[fault.Fault], *, boot_id: str, now: datetime) -> int:
    """Adds occurrences of one fault (its kind, code and device); returns how many of them were counted before."""
    kind, code, device = which
    # An agent that lost its place reads its boot's log again: old lines are no new faults though they were closed.
    incident = Incident.objects.filter(node=node, kind=kind, code=code, device=device).order_by("-pk").first()
    fresh, counted = _fresh(incident.counted_records if incident else [], seen, boot_id=boot_id)
    if not fresh:
        return len(seen)
    opened = False
    if incident is None or incident.state != Incident.State.OPEN:
        incident, opened = _open(
            node, which, _opening(node, fresh, boot_id=boot_id, now=now) | {"counted_records": counted}
        )
    if opened:
        doorbell.ring("rescue.decide", incident.pk)
    elif not _add(node, incident, fresh, counted, boot_id=boot_id, now=now):
        return _keep(node, which, seen, boot_id=boot_id, now=now)  # closed in this very moment: it is a new one
    occurrences.keep(node, incident, fresh, new=opened, boot_id=boot_id, now=now)
    doorbell.tell("incident", incident.pk, cluster=node.cluster.name)
    return len(seen) - len(fresh)


def _open(node: Node, which: tuple[str, str, str], begun: Mapping[str, Any]) -> tuple[Incident, bool]:
    """The one open incident of this fault, and whether it is new: of two at once one opens it."""
    kind, code, device = which
    one = {"node": node, "kind": kind, "code": code, "device": device, "state": Incident.State.OPEN}
    try:
        with transaction.atomic():
            return Incident.objects.create(**one, **begun), True
    except IntegrityError:
        return Incident.objects.get(**one), False


def _fresh(
    counted: dedup.Counted, seen: Sequence[fault.Fault], *, boot_id: str
) -> tuple[list[fault.Fault], dedup.Counted]:
    """The faults with new lines, each with the number of its new lines, and the counted records after them."""
    fresh = []
    for one in seen:
        count, counted = dedup.count(counted, one, boot_id=boot_id)
        if count:
            fresh.append(replace(one, count=count))
    return fresh, counted


def _add(
    node: Node, incident: Incident, fresh: Sequence[fault.Fault], counted: dedup.Counted, *, boot_id: str, now: datetime
) -> bool:
    """Adds to an open incident and calls for its judgement; False if it is no longer open."""
    said = {"is_user_fault": incident.is_user_fault, "severity": incident.severity}
    worst = _worst(said, fresh, drill=incident.drill)
    worse = worst is not said
    changes: dict[str, Any] = {"count": F("count") + sum(one.count for one in fresh), "last_at": now}
    if worse:
        changes |= worst
    if not _is_late(node, incident, boot_id):
        changes["boot_id"] = boot_id
    if any(one.sequence is not None or one.records for one in fresh):
        changes["counted_records"] = counted
    # A real occurrence outweighs a drill: what was seen once for real is no exercise.
    if incident.drill and not all(one.drill for one in fresh):
        changes["drill"] = False
    other = incident.boot_id != changes.get("boot_id", incident.boot_id)
    decided_at = incident.decided_at
    at_once = worse or other or decided_at is None or now - decided_at >= REDECIDE_AFTER
    # Else it counts for rules that ask how often, too; the sweep sees to it.
    due = now if decided_at is None or at_once else decided_at + REDECIDE_AFTER
    changes["decide_at"] = Least(Coalesce(F("decide_at"), due), due)
    if not Incident.objects.filter(pk=incident.pk, state=Incident.State.OPEN).update(**changes):
        return False
    # What is due and no worse was rung for when it became due.
    if at_once and (worse or other or incident.decide_at is None or incident.decide_at > now):
        doorbell.ring("rescue.decide", incident.pk)
    return True


def _device(seen: fault.Fault) -> str:
    """What tells two devices of a node apart: the slot if it was printed, so that a replaced GPU keeps its incident."""
    if seen.pci:
        return xid.slot(seen.pci) or seen.pci.lower()
    return seen.gpu_uuid or ""


def _is_late(node: Node, incident: Incident, boot_id: str) -> bool:
    """Whether an occurrence of an earlier boot comes after one of a later boot: it takes nothing back (invariant 15).

    By the watch, or by what was delivered before.
    """
    if boot_id == incident.boot_id or not incident.boot_id:
        return False
    return boot_id in node.past_boots or (boot_id != node.boot_id and incident.occurrences.filter(boot_id=boot_id).exists())


def _worst(said: dict[str, Any], seen: Sequence[fault.Fault], *, drill: bool) -> dict[str, Any]:
    """What the worst line says of the incident: of one code some are fatal, and some a program's doing. ``said`` itself
    where none is worse; a drill says nothing of what was seen for real."""
    for one in seen:
        if one.kind in fault.NUMERIC_KINDS and (drill or not one.drill):
            reading = _reading(one)
            if _weight(reading) > _weight(said):
                said = reading
        drill = drill and one.drill
    return said


def _weight(said: Mapping[str, Any]) -> tuple[bool, int]:
    severity = said["severity"]
    return not said["is_user_fault"], catalog.SEVERITIES.index(severity) if severity in catalog.SEVERITIES else -1


def _reading(seen: fault.Fault) -> dict[str, Any]:
    """What the line itself says of the fault."""
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
        "drill": all(one.drill for one in seen),
        "boot_id": boot_id,
        "count": sum(one.count for one in seen),
        "opened_at": now,
        "last_at": now,
        "decide_at": now,
    }


def _uuid_at(node: Node, pci: str | None) -> str:
    """The GPU in that slot by the node's inventory; the kernel log prints slots only."""
    if not pci:
        return ""
    slot = xid.slot(pci)
    devices = Gpu.objects.filter(node=node).values_list("pci", "uuid")
    return next((uuid for at, uuid in devices if slot and xid.slot(at) == slot), "")


def keep_storm(cluster: Cluster, *, kind: str, code: str, nodes: Sequence[str], now: datetime) -> tuple[Incident, bool]:
    """The one open incident of a storm, with these nodes in its scope; opened if need be, and then True.

    It is never judged: it stays until a person closes it.
    """
    storm, opened = Incident.objects.get_or_create(
        cluster=cluster,
        node=None,
        kind=kind,
        code=code,
        state=Incident.State.OPEN,
        defaults={
            "severity": "critical",
            "message": f"one symptom on many nodes at once, {code}: look for what they share",
            "opened_at": now,
            "last_at": now,
        },
    )
    if not set(nodes).issubset(storm.scope):
        locked = Incident.objects.select_for_update().get(pk=storm.pk)  # of two at once none is lost
        scope = sorted({*locked.scope, *nodes})
        Incident.objects.filter(pk=storm.pk).update(scope=scope, count=len(scope), last_at=now)
        doorbell.tell("incident", storm.pk, cluster=cluster.name)
    return storm, opened


def mark_decided(incident: Incident, *, labels: Mapping[str, str], now: datetime, again_at: datetime | None) -> None:
    """Notes that the incident was judged as it stood, on a node with these labels; an occurrence that came meanwhile keeps
    its own call."""
    as_it_stood = When(decide_at__lte=now, last_at=incident.last_at, then=Value(again_at, output_field=DateTimeField()))
    Incident.objects.filter(pk=incident.pk).update(
        decided_at=now, decided_labels=_digest(labels), decide_at=Case(as_it_stood, default=F("decide_at"))
    )


def redecide_if_labels_changed(node: Node, *, now: datetime) -> None:
    """Asks for a new judgement of what was settled on the node when it had other labels: an exclusion that is taken
    back, or a label that a rule selects by, is as good a reason as a new occurrence."""
    rows = Incident.objects.filter(node=node, state=Incident.State.OPEN, decide_at=None, decided_at__isnull=False)
    other = rows.exclude(decided_labels__in=("", _digest(node.labels)))
    for pk in other.values_list("pk", flat=True):
        if rows.filter(pk=pk).update(decide_at=now):
            doorbell.ring("rescue.decide", pk)


def _digest(labels: Mapping[str, str]) -> str:
    """Tells labels apart; the portal's own word on the node's state is none that a rule means."""
    said = sorted((key, value) for key, value in labels.items() if key != marks.STATE_LABEL)
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def redecide_cluster(cluster: Cluster, *, seen_since: datetime, now: datetime) -> int:
    """Asks for a new judgement of what was settled in the cluster, after what decides has changed; returns how many.

    ``seen_since``: what was not seen for longer is past its time to live (invariant 32).
    """
    rows = Incident.objects.filter(cluster=cluster, state=Incident.State.OPEN, decide_at=None, last_at__gte=seen_since)
    return rows.exclude(node=None).exclude(decided_at=None).update(decide_at=now)


def redecide_node(node: Node, *, now: datetime) -> None:
    """Asks for a new judgement of everything open on the node, after what held it back has gone."""
    rows = Incident.objects.filter(node=node, state=Incident.State.OPEN)
    rows.update(decide_at=now)
    for pk in rows.values_list("pk", flat=True):
        doorbell.ring("rescue.decide", pk)
