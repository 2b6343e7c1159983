"""Keeping faults: one path for every source, whatever the fault."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, DateTimeField, F, Value, When
from django.db.models.functions import Coalesce, Least

from kcover import catalog, fault, marks, nvlink5, xid
from kcover_portal import doorbell
from kcover_portal.fleet.models import Cluster, Gpu, Node
from kcover_portal.incidents.models import Event, Incident
from kcover_portal.incidents.services import counting

EVENTS_KEPT = 50  # per incident: enough to see the story, bounded in a storm
JUDGE_AGAIN = timedelta(seconds=5)  # a repeated fault asks for judgement at most this often (Delta study's window)


def keep_fault(node: Node, seen: fault.Fault, *, boot_id: str, now: datetime) -> bool:
    """Adds one fault to its incident, opening it if need be; False if every log record of it was counted before.

    Who tells of log records does so under the lock of its agent's row (``hearing.hear``), one report after the other.
    """
    if seen.kind == "xid" and xid.is_all_clear(seen.code, seen.message):
        return True  # Xid 154 back to "None" takes a recovery action back: nothing is wrong (semantics 0.12)
    code, device = str(seen.code), _device(seen)
    # An agent that lost its place reads its boot's log again: old lines are no new faults though they were closed.
    latest = Incident.objects.filter(node=node, kind=seen.kind, code=code, device=device).order_by("-pk").first()
    count, told = counting.count(latest.told if latest else [], seen, boot_id=boot_id)
    if not count:
        return False
    fresh = replace(seen, count=count)
    incident, opened = latest, False
    if incident is None or incident.state != Incident.State.OPEN:
        incident, opened = Incident.objects.get_or_create(
            node=node,
            kind=seen.kind,
            code=code,
            device=device,
            state=Incident.State.OPEN,
            defaults=_opening(node, fresh, boot_id=boot_id, now=now) | {"told": told},
        )
    if opened:
        _keep_event(node, incident, fresh, boot_id=boot_id, now=now)
        doorbell.ring("rescue.judge", incident.pk)
        doorbell.tell("incident", incident.pk, cluster=node.cluster.name)
        return True
    worse = _worse(incident, fresh)
    changes: dict[str, Any] = {"count": F("count") + count, "last_at": now, **worse}
    if not _is_late(node, incident, boot_id):
        changes["boot_id"] = boot_id
    if seen.sequence is not None or seen.records:
        changes["told"] = told
    # A real sighting outweighs a drill: what was seen once for real is no exercise.
    if incident.drill and not seen.drill:
        changes["drill"] = False
    other = incident.boot_id != changes.get("boot_id", incident.boot_id)
    judged_at = incident.judged_at
    if worse or other or judged_at is None or now - judged_at >= JUDGE_AGAIN:
        changes["judge_at"] = now
        doorbell.ring("rescue.judge", incident.pk)
    else:  # it counts for rules that ask how often, too; the sweep sees to it
        changes["judge_at"] = Least(Coalesce(F("judge_at"), judged_at + JUDGE_AGAIN), judged_at + JUDGE_AGAIN)
    if not Incident.objects.filter(pk=incident.pk, state=Incident.State.OPEN).update(**changes):
        return keep_fault(node, seen, boot_id=boot_id, now=now)  # closed in this very moment: it is a new one
    kept = incident.events.count()
    # Of each boot one at least: by it a fault of the present boot is known as such.
    first = kept < 2 * EVENTS_KEPT and incident.boot_id != boot_id and not incident.events.filter(boot_id=boot_id)
    if kept < EVENTS_KEPT or first:
        _keep_event(node, incident, fresh, boot_id=boot_id, now=now)
    else:
        newest = incident.events.filter(sequence__isnull=True).order_by("-id").values("pk")[:1]
        Event.objects.filter(pk__in=newest).update(count=F("count") + count, at=now)
    doorbell.tell("incident", incident.pk, cluster=node.cluster.name)
    return True


def _device(seen: fault.Fault) -> str:
    """What tells two devices of a node apart: the slot if it was printed, so that a replaced GPU keeps its incident."""
    if seen.pci:
        return xid.slot(seen.pci) or seen.pci.lower()
    return seen.gpu_uuid or ""


def _is_late(node: Node, incident: Incident, boot_id: str) -> bool:
    """Whether a sighting of an earlier boot comes after one of a later boot: it takes nothing back (invariant 15).

    By the watch, or by what was delivered before.
    """
    if boot_id == incident.boot_id or not incident.boot_id:
        return False
    return boot_id in node.past_boots or (boot_id != node.boot_id and incident.events.filter(boot_id=boot_id).exists())


def _worse(incident: Incident, seen: fault.Fault) -> dict[str, Any]:
    """What the line says of the incident, where it is worse than all before it: of one code some are fatal, and some a
    program's doing."""
    if seen.kind not in fault.NUMERIC_KINDS or (seen.drill and not incident.drill):
        return {}
    said = _reading(seen)
    if _weight(said["program"], said["severity"]) <= _weight(incident.program, incident.severity):
        return {}
    return said


def _weight(program: bool, severity: str) -> tuple[bool, int]:
    known = severity in catalog.SEVERITIES
    return not program, catalog.SEVERITIES.index(severity) if known else -1


def _reading(seen: fault.Fault) -> dict[str, Any]:
    """What the line itself says of the fault."""
    sighting = xid.parse_line(seen.message)
    cause = sighting.cause if sighting and seen.kind == "xid" else None
    fatal = nvlink5.fatal(sighting)
    numeric = int(seen.code) if seen.kind in fault.NUMERIC_KINDS else None
    return {
        "severity": catalog.severity(seen.kind, numeric, fatal=fatal) if numeric is not None else "warning",
        "program": numeric is not None and catalog.is_program_fault(seen.kind, numeric, cause=cause, fatal=fatal),
        "cause": cause,
        "message": seen.message,
    }


def _opening(node: Node, seen: fault.Fault, *, boot_id: str, now: datetime) -> dict[str, Any]:
    return {
        "cluster": node.cluster,
        "gpu_uuid": seen.gpu_uuid or _uuid_at(node, seen.pci),
        **_reading(seen),
        "drill": seen.drill,
        "boot_id": boot_id,
        "count": seen.count,
        "opened_at": now,
        "last_at": now,
        "judge_at": now,
    }


def _uuid_at(node: Node, pci: str | None) -> str:
    """The GPU in that slot by the node's inventory; the kernel log prints slots only."""
    if not pci:
        return ""
    slot = xid.slot(pci)
    devices = Gpu.objects.filter(node=node).values_list("pci", "uuid")
    return next((uuid for at, uuid in devices if slot and xid.slot(at) == slot), "")


def _keep_event(node: Node, incident: Incident, seen: fault.Fault, *, boot_id: str, now: datetime) -> None:
    event = Event(
        incident=incident,
        node=node,
        boot_id=boot_id,
        source=seen.source,
        sequence=seen.sequence,
        message=seen.message,
        drill=seen.drill,
        count=seen.count,
        seen_at=seen.seen_at,
        at=now,
    )
    # Of two agents on the node one may show a line that the other showed for fewer.
    Event.objects.bulk_create([event], ignore_conflicts=True)


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


def mark_judged(incident: Incident, *, labels: Mapping[str, str], now: datetime, again_at: datetime | None) -> None:
    """Notes that the incident was judged as it stood, on a node with these labels; a sighting that came meanwhile keeps
    its own call."""
    as_it_stood = When(judge_at__lte=now, last_at=incident.last_at, then=Value(again_at, output_field=DateTimeField()))
    Incident.objects.filter(pk=incident.pk).update(
        judged_at=now, judged_labels=_digest(labels), judge_at=Case(as_it_stood, default=F("judge_at"))
    )


def judge_under(node: Node, *, now: datetime) -> None:
    """Asks for a new judgement of what was settled on the node when it had other labels: an exclusion that is taken
    back, or a label that a rule selects by, is as good a reason as a new sighting."""
    rows = Incident.objects.filter(node=node, state=Incident.State.OPEN, judge_at=None, judged_at__isnull=False)
    other = rows.exclude(judged_labels__in=("", _digest(node.labels)))
    for pk in other.values_list("pk", flat=True):
        if rows.filter(pk=pk).update(judge_at=now):
            doorbell.ring("rescue.judge", pk)


def _digest(labels: Mapping[str, str]) -> str:
    """Tells labels apart; the portal's own word on the node's state is none that a rule means."""
    said = sorted((key, value) for key, value in labels.items() if key != marks.STATE_LABEL)
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def judge_anew(cluster: Cluster, *, seen_since: datetime, now: datetime) -> int:
    """Asks for a new judgement of what was settled in the cluster, after what decides has changed; returns how many.

    ``seen_since``: what was not seen for longer is past its time to live (invariant 32).
    """
    rows = Incident.objects.filter(cluster=cluster, state=Incident.State.OPEN, judge_at=None, last_at__gte=seen_since)
    return rows.exclude(node=None).exclude(judged_at=None).update(judge_at=now)


def call_for_judgement(node: Node, *, now: datetime) -> None:
    """Asks for a new judgement of everything open on the node, after what held it back has gone."""
    rows = Incident.objects.filter(node=node, state=Incident.State.OPEN)
    rows.update(judge_at=now)
    for pk in rows.values_list("pk", flat=True):
        doorbell.ring("rescue.judge", pk)
