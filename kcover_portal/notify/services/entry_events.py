"""The events of audit entries: the meaning of an act for people, and its effect on alerts."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from kcover import audit, reasons
from kcover.decisions import decide, guards
from kcover.notify import events, pager
from kcover_portal.fleet import queries as fleet
from kcover_portal.incidents.models import STORM, Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.notify.models import Cursor
from kcover_portal.notify.services import event_facts
from kcover_portal.notify.services.new_event import NewEvent
from kcover_portal.rescue.models import Rescue

SILENT = ("agent", "silent")  # the fault of an agent that does not report
VERBS = (
    *audit.RescueEnded.verbs(),
    *(
        act.VERB
        for act in (
            audit.RescueOpened,
            audit.RescueHeld,
            audit.RescueApproved,
            audit.RescueRejected,
            audit.StepHeld,
            audit.DeviceRuleGone,
            audit.IncidentClosed,
            audit.StormOpened,
            audit.AutomationPaused,
            audit.AutomationResumed,
            audit.ClusterChanged,
            audit.PreflightExpired,
            audit.JobOrderSettled,
            audit.JobMoving,
            audit.JobMoved,
            audit.DatabaseDiverged,
            audit.PartFlagged,
        )
    ),
    audit.DecisionMade.verb_of(audit.DecisionAnswer.HOLD),
)

_OfRescue = audit.RescueAct | audit.StepHeld | audit.DeviceRuleGone


def of_entries(entries: Sequence[Entry], *, now: datetime) -> Iterator[NewEvent]:
    """The events of these entries of one chain, in their order."""
    acts = [audit.from_entry(entry) for entry in entries]
    known = event_facts.of(acts)
    for entry, act in zip(entries, acts, strict=True):
        event = _of_act(act, entry, known, now=now)
        if event is not None:
            key = f"entry-{entry.cluster}-{entry.sequence}"
            yield NewEvent(key, event, _moves(act, event, known, key=key))


def _moves(act: audit.Act, event: events.Event, known: event_facts.Facts, *, key: str) -> tuple[pager.AlertChange, ...]:
    """The effect of the act on alerts: the moves of its event, and those that depend on the act and its rows."""
    found = pager.alert_changes(event, key=key)
    match act:
        case audit.DecisionMade() if event.kind == "rescue.human":
            return (pager.AlertChange(pager.TRIGGER, pager.alert_name("decision", act.incident)),)
        case audit.IncidentClosed():
            ended = known.settled.get(act.incident, ())
            return (*found, *(pager.AlertChange(pager.RESOLVE, pager.alert_name("rescue", pk)) for pk in ended))
        case audit.RescueApproved() if act.granted:
            about = Incident.objects.filter(rescues=act.rescue).order_by("pk").values_list("pk", flat=True)
            return (
                *found,
                pager.AlertChange(pager.RESOLVE, pager.alert_name("question", act.rescue)),
                *(pager.AlertChange(pager.ACKNOWLEDGE, pager.alert_name("incident", pk)) for pk in about),
            )
    return found


def _of_act(act: audit.Act, entry: Entry, known: event_facts.Facts, *, now: datetime) -> events.Event | None:
    match act:
        case audit.IncidentClosed():
            return _closed(act, entry, known)
        case audit.StormOpened():
            return _storm(act, entry, known)
        case audit.DecisionMade():
            return _asked(act, entry, known) or _breaker(act, entry, known, now=now)
        case audit.ModeAct() | audit.ClusterChanged():
            return _mode(act, entry)
        case audit.RescueAct() | audit.StepHeld() | audit.DeviceRuleGone():
            return _rescue(act, entry, known)
        case audit.DatabaseDiverged():
            because = reasons.both(reasons.of("database_diverged", at=reasons.moment(act.anchored_at)), *act.because)
            return _about(entry, "ledger.diverged", because=because)
        case audit.PreflightExpired():
            because = reasons.of("preflight_incomplete", received=act.received, expected=act.expected)
            what = f"{act.namespace}/{act.workload}"
            return _about(entry, "preflight.expired", what=what, record=act.run, because=because)
        case audit.JobOrderSettled() if act.state != "shadow":
            kind = "job.human" if act.state == "held" else "job.ended"
            about = {"what": f"{act.kind} {act.job}", "record": act.order, "channel": act.channel}
            return _about(entry, kind, because=act.because, **about)
        case audit.JobMoveAct() | audit.PartFlagged():
            return _by_its_verb(act, entry)
    return None


def _by_its_verb(act: audit.JobMoveAct | audit.PartFlagged, entry: Entry) -> events.Event:
    """The event of the same name as the act."""
    if isinstance(act, audit.PartFlagged):
        what = f"{act.kind} {act.serial}"
        return _about(entry, act.verb, what=what, record=act.part, because=reasons.both(*act.because))
    what = f"{act.kind} {act.job}"
    return _about(entry, act.verb, what=what, record=act.rescue, because=act.because, channel=act.channel)


def _rescue(act: _OfRescue, entry: Entry, known: event_facts.Facts) -> events.Event | None:
    rescue = known.rescues.get(act.rescue)
    kind = _rescue_kind(act)
    if rescue is None or kind is None:
        return None
    because = _because(act, entry)
    if kind == "approval.waiting" and rescue.expires_at is not None:
        because = reasons.both(because, reasons.of("answer_until", until=reasons.moment(rescue.expires_at)))
    return _about(entry, kind, what=rescue.code, record=rescue.pk, because=because)


def _rescue_kind(act: _OfRescue) -> str | None:
    """The kind of event for people; None if the act is not an event."""
    match act:
        case audit.RescueOpened():
            return "approval.waiting" if act.state == Rescue.State.HELD else "rescue.opened"
        case audit.RescueHeld():
            return "approval.waiting"
        case audit.StepHeld() | audit.DeviceRuleGone():
            return "rescue.human"
        case audit.Vote():
            return "approval.answered"
        case audit.RescueEnded():
            return _end_kind(act)
    return None


def _end_kind(act: audit.RescueEnded) -> str:
    if act.state is audit.RescueEnd.FAILED:
        return "rescue.failed"
    if act.needs_human:
        return "rescue.human"
    healed = act.state is audit.RescueEnd.SUCCEEDED and act.outcome == "healed"
    return "rescue.healed" if healed else "rescue.ended"


def _because(act: _OfRescue, entry: Entry) -> reasons.Reason | None:
    match act:
        case audit.RescueOpened():
            return reasons.of("quoted_text", text=act.reason) if act.reason else act.because
        case audit.Vote():
            return reasons.with_why("acted", act.reason, by=entry.actor)
        case audit.RescueEnded():
            known = act.because is not None or act.withdrawn is not None
            return reasons.both(act.because, act.withdrawn) if known else None
        case audit.RescueHeld() | audit.StepHeld() | audit.DeviceRuleGone():
            return act.because
    return None


def _closed(act: audit.IncidentClosed, entry: Entry, known: event_facts.Facts) -> events.Event | None:
    incident = known.incidents.get(act.incident)
    if incident is None:
        return None
    silent = (incident.kind, incident.code) == SILENT
    if incident.is_user_fault and not silent:
        return None  # a user program's fault becomes an event when it is seen, if a route selects it
    return _about(
        entry,
        "agent.back" if silent else "incident.closed",
        what=_what(incident),
        record=incident.pk,
        because=act.because,
        severity=incident.severity,
        drill=incident.drill,
        nodes=len(incident.scope),
    )


def _storm(act: audit.StormOpened, entry: Entry, known: event_facts.Facts) -> events.Event | None:
    incident = known.incidents.get(act.incident)
    if incident is None:
        return None
    nodes = act.nodes or len(incident.scope)
    because = incident.message_reason
    return _about(entry, "storm.opened", what=_what(incident), record=incident.pk, nodes=nodes, because=because)


def _what(incident: Incident) -> str:
    """The fault in short; of a storm the shared symptom, because its code is for programs."""
    if incident.kind == STORM:
        return f"{incident.symptom_kind} {incident.symptom}".strip()
    return f"{incident.kind} {incident.code}"


def _asked(act: audit.DecisionMade, entry: Entry, known: event_facts.Facts) -> events.Event | None:
    """A fault that returns in spite of automation: a person is asked, once for as long as it holds."""
    row = known.decisions.get(act.decision)
    reason = decide.asked_of_person(act.because)
    about = row.incident if row else None
    if about is None or reason is None:
        return None
    return _about(entry, kind="rescue.human", what=f"{about.kind} {about.code}", because=reason, drill=about.drill)


def _breaker(act: audit.DecisionMade, entry: Entry, known: event_facts.Facts, *, now: datetime) -> events.Event | None:
    """A breaker that holds back several nodes: one event within its window."""
    row = known.decisions.get(act.decision)
    reason = next((part for part in act.because if guards.guard_of(part.code) == "breaker"), None)
    if row is None or reason is None:
        return None
    window = fleet.guards_of(row.cluster).breaker.window
    cursor, new = Cursor.objects.get_or_create(name=f"breaker {entry.cluster}", defaults={"at": entry.at})
    if not new:
        if entry.at - cursor.at < window:
            return None
        Cursor.objects.filter(name=cursor.name).update(at=entry.at)
    return _about(entry, "breaker.tripped", because=reason, node="")


def _mode(act: audit.ModeAct | audit.ClusterChanged, entry: Entry) -> events.Event | None:
    """A pause or its end, by its own act or by a change of the cluster's mode."""
    if isinstance(act, audit.ModeAct):
        paused = isinstance(act, audit.AutomationPaused)
    else:
        moved = act.changed.get("mode")
        if moved is None or "paused" not in (moved.before, moved.after):
            return None
        paused = moved.after == "paused"
    kind = "automation.paused" if paused else "automation.resumed"
    return _about(entry, kind, because=reasons.with_why("acted", act.reason, by=entry.actor))


def _about(entry: Entry, kind: str, **more: Any) -> events.Event:
    return events.Event(**{"kind": kind, "at": entry.at, "cluster": entry.cluster, "node": entry.node, **more})
