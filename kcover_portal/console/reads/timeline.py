"""The timeline of a node: faults, decisions, steps and audit log entries, newest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from kcover import actors, audit
from kcover.decisions import guards
from kcover.plans import lifecycle
from kcover_portal.console import presentation
from kcover_portal.console.badge import Badge
from kcover_portal.console.fault_names import fault_message, incident_name, symptom
from kcover_portal.console.reads import entries as records, guard_holds, rescues
from kcover_portal.console.reads.wait import Wait
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import queries as ledger
from kcover_portal.lib import actor_names, localization
from kcover_portal.needs.queries import sentences
from kcover_portal.rescue.models import Decision, Rescue, Step
from kcover_portal.rescue.queries import last_decisions, needs_person

MAX_ENTRIES = 60
FLOW = ("fault", "decision", "rescue", "act", "step", "end")  # the order of kinds with the same time
# Another entry of the timeline tells these: a decision and its rescue are one opening, also with the guards that let a
# request pass; a denial and the end of its rescue are one end; an incident tells its own close.
_TOLD = (
    audit.DecisionMade,
    *(audit.RescueOpened, audit.GuardPassed),
    *(audit.RescueEnded, audit.RescueRejected, audit.QuestionCancelled),
    audit.IncidentClosed,
)


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One entry of the timeline; ``kind`` is one of FLOW: an act is an action of a person, an end that of a rescue."""

    at: datetime
    kind: str
    look: Badge
    title: str | Promise
    text: str = ""
    page: str = ""
    record: int | None = None
    anchor: str = ""


def of_node(node: Node, *, length: int = MAX_ENTRIES) -> list[TimelineEntry]:
    """The newest ``length`` moments; what happened once is one entry."""
    moments = [*_faults(node, length), *_decisions(node, length), *_rescues(node, length), *_acts(node, length)]
    return sorted(moments, key=lambda moment: (moment.at, FLOW.index(moment.kind)), reverse=True)[:length]


def _faults(node: Node, length: int) -> list[TimelineEntry]:
    moments = []
    for incident in Incident.objects.filter(node=node)[:length]:
        name = incident_name(incident)
        text = " · ".join(part for part in (incident.device, fault_message(incident)[:160]) if part)
        moments.append(
            TimelineEntry(
                incident.opened_at, "fault", presentation.of("incident", "open"), name, text, "incident", incident.pk
            )
        )
        if incident.closed_at:
            closed = _("%(fault)s closed") % {"fault": name}
            look = presentation.of("incident", "closed")
            moments.append(
                TimelineEntry(
                    incident.closed_at,
                    "fault",
                    look,
                    closed,
                    localization.stored(incident.closed_because),
                    "incident",
                    incident.pk,
                )
            )
    return moments


def _decisions(node: Node, length: int) -> list[TimelineEntry]:
    """Decisions that led to no rescue: a rescue tells its own."""
    return [
        TimelineEntry(
            decision.at,
            "decision",
            presentation.of("answer", decision.answer),
            _("Decision: %(answer)s") % {"answer": presentation.of("answer", decision.answer).label},
            localization.sentence(decision.reasons),
            "incident" if decision.incident_id else "",
            decision.incident_id,
            f"decision-{decision.pk}",
        )
        for decision in Decision.objects.filter(node=node, rescues=None)[:length]
    ]


def _rescues(node: Node, length: int) -> list[TimelineEntry]:
    moments = []
    for rescue in Rescue.objects.filter(node=node).select_related("decision")[:length]:
        title = _("Rescue %(number)d opened") % {"number": rescue.pk}
        why = rescue.rule or " · ".join(part for part in (rescue.requested_by, rescue.reason) if part)
        look = presentation.of("answer", "rescue")
        if rescue.decision is not None:
            look = presentation.of("answer", rescue.decision.answer)
            why = localization.sentence(rescue.decision.reasons)
        moments.append(TimelineEntry(rescue.opened_at, "rescue", look, title, why, "rescue", rescue.pk))
        if rescue.closed_at:
            look = presentation.of("rescue", rescue.state)
            ended = _("Rescue %(number)d: %(state)s") % {"number": rescue.pk, "state": look.label}
            moments.append(
                TimelineEntry(
                    rescue.closed_at, "end", look, ended, localization.stored(rescue.because), "rescue", rescue.pk
                )
            )
    steps = Step.objects.filter(rescue__node=node, started_at__isnull=False).order_by(F("started_at").desc())[:length]
    for step in steps:
        look = presentation.of("step", step.state)
        moments.append(
            TimelineEntry(
                step.finished_at or step.started_at or node.created_at,
                "step",
                look,
                _("%(step)s: %(state)s") % {"step": rescues.title(step), "state": look.label},
                localization.stored(step.because),
                "rescue",
                step.rescue_id,
                f"step-{step.index + 1}",
            )
        )
    return moments


def _acts(node: Node, length: int) -> list[TimelineEntry]:
    """Actions of people and programs from the audit log.

    Calls of the engine are on the rescue's page.
    """
    told = [verb for act in _TOLD for verb in act.verbs()]
    entries = ledger.timeline(node.cluster.name, node=node.name).exclude(actor__startswith="rescue ")
    entries = entries.exclude(verb__in=told)
    return [
        TimelineEntry(
            entry.at,
            "act",
            Badge("", "off", "user" if actors.is_user(entry.actor) else "robot"),
            records.title(entry),
            " · ".join(part for part in (actor_names.name(entry.actor), records.why(entry)) if part),
            "rescue" if entry.rescue else "",
            entry.rescue,
        )
        for entry in entries[:length]
    ]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One answer to "why is this node not healing?": the reason, where to read on, and when it is evaluated again, if
    it is. ``wait``: what ends the hold of a guard.
    """

    text: str
    page: str = ""
    record: int | None = None
    again_at: datetime | None = None
    wait: Wait | None = None


def why_not_healing(node: Node, *, state: str, open_incidents: Sequence[Incident], now: datetime) -> list[Explanation]:
    """The reasons why a node is not being healed, the most general first; empty if it is healing or healthy."""
    rescue = Rescue.objects.filter(node=node, state__in=lifecycle.OPEN_RESCUE).first()
    if state == "healthy" or not (open_incidents or rescue or state == "attention"):
        return []
    held = rescues.held_back(rescue) if rescue is not None else ""
    if rescue is not None and held:
        text = _("Rescue %(number)d is blocked: %(because)s") % {"number": rescue.pk, "because": held}
        return [Explanation(text, "rescue", rescue.pk, rescue.due_at), *_bounds(node, now=now)]
    if state in ("healing", "repair"):
        return []
    found = _bounds(node, now=now)
    left = needs_person.left_to_people().filter(node=node).first()
    if state == "attention" and left is not None:
        text = _("Rescue %(number)d needs attention: %(because)s") % {
            "number": left.pk,
            "because": localization.stored(left.because) or left.outcome,
        }
        found.append(Explanation(text, "rescue", left.pk))
    return [*found, *_judgements(open_incidents)]


def _bounds(node: Node, *, now: datetime) -> list[Explanation]:
    """Reasons that apply to the node regardless of its fault: pause, exclusion, maintenance, storm."""
    found = []
    mode, reason = fleet.mode_of(node.cluster)
    if mode in fleet.MODES_WITHOUT_WRITES:
        label = presentation.of("mode", mode).label
        found.append(Explanation(f"{label}: {reason}" if reason else str(label)))
    if node.labels.get(guards.EXCLUDE_LABEL) == "true":
        found.append(Explanation(str(presentation.GUARDS["exclusion"].help)))
    for window in fleet.maintenance(node.cluster, now=now).filter(starts_at__lte=now):
        if window.covers(node):
            text = f"{presentation.GUARDS['maintenance'].help} {window.reason}"
            found.append(Explanation(text, again_at=window.ends_at))
    storms = Incident.objects.filter(cluster=node.cluster, node=None, state=Incident.State.OPEN)
    found += [
        Explanation(
            _("Part of an open storm: %(symptom)s") % {"symptom": symptom(storm)},
            "incident",
            storm.pk,
        )
        for storm in storms
        if node.name in storm.scope
    ]
    return found


def _judgements(open_incidents: Sequence[Incident]) -> list[Explanation]:
    """The last decision about each open fault that did not lead to a rescue."""
    latest = last_decisions.of(open_incidents)
    found = []
    for incident in (one for one in open_incidents if not one.is_user_fault):
        decision, name = latest.get(incident.pk), incident_name(incident)
        if decision is None:
            found.append(Explanation(_("%(fault)s: no decision yet.") % {"fault": name}, "incident", incident.pk))
        elif decision.answer != "rescue":
            why = localization.sentence(sentences.in_short(incident, decision.reasons))
            text = _("%(title)s: %(what)s") % {"title": name, "what": why}
            hold = guard_holds.of_decision(decision.reasons)
            found.append(Explanation(text, "incident", incident.pk, incident.decide_at, hold))
    return found
