"""One node's story: faults, decisions, steps and ledger entries merged, newest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from kcover import guards, lifecycle
from kcover_portal.console import looks, wording
from kcover_portal.console.reads import rescues
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.models import Decision, Rescue, Step
from kcover_portal.rescue.services import refusing

LENGTH = 60
FLOW = ("fault", "decision", "rescue", "act", "step")  # what follows what, where the time is the same


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened. ``kind``: fault, decision, rescue, step or act (of a person or the portal)."""

    at: datetime
    kind: str
    look: looks.Look
    title: str | Promise
    text: str = ""
    page: str = ""
    record: int | None = None
    anchor: str = ""


def of_node(node: Node, *, length: int = LENGTH) -> list[Moment]:
    """The newest ``length`` moments."""
    moments = [*_faults(node, length), *_decisions(node, length), *_rescues(node, length), *_acts(node, length)]
    return sorted(moments, key=lambda moment: (moment.at, FLOW.index(moment.kind)), reverse=True)[:length]


def _faults(node: Node, length: int) -> list[Moment]:
    moments = []
    for incident in Incident.objects.filter(node=node)[:length]:
        name = fault_name(incident.kind, incident.code)
        text = " · ".join(part for part in (incident.device, incident.message[:160]) if part)
        moments.append(
            Moment(incident.opened_at, "fault", looks.of("incident", "open"), name, text, "incident", incident.pk)
        )
        if incident.closed_at:
            closed = _("%(fault)s closed") % {"fault": name}
            look = looks.of("incident", "closed")
            moments.append(
                Moment(incident.closed_at, "fault", look, closed, incident.closed_because, "incident", incident.pk)
            )
    return moments


def _decisions(node: Node, length: int) -> list[Moment]:
    return [
        Moment(
            decision.at,
            "decision",
            looks.of("answer", decision.answer),
            _("Decision: %(answer)s") % {"answer": looks.of("answer", decision.answer).label},
            wording.sentence(decision.reasons),
            "incident" if decision.incident_id else "",
            decision.incident_id,
            f"decision-{decision.pk}",
        )
        for decision in Decision.objects.filter(node=node)[:length]
    ]


def _rescues(node: Node, length: int) -> list[Moment]:
    moments = []
    for rescue in Rescue.objects.filter(node=node)[:length]:
        title = _("Rescue %(number)d opened") % {"number": rescue.pk}
        who = rescue.rule or rescue.requested_by
        moments.append(
            Moment(rescue.opened_at, "rescue", looks.of("answer", "rescue"), title, who, "rescue", rescue.pk)
        )
        if rescue.closed_at:
            look = looks.of("rescue", rescue.state)
            ended = _("Rescue %(number)d: %(state)s") % {"number": rescue.pk, "state": look.label}
            moments.append(Moment(rescue.closed_at, "rescue", look, ended, rescue.because, "rescue", rescue.pk))
    steps = Step.objects.filter(rescue__node=node, started_at__isnull=False).order_by(F("started_at").desc())[:length]
    for step in steps:
        look = looks.of("step", step.state)
        moments.append(
            Moment(
                step.finished_at or step.started_at or node.created_at,
                "step",
                look,
                _("%(step)s: %(state)s") % {"step": rescues.title(step), "state": look.label},
                step.because,
                "rescue",
                step.rescue_id,
                f"step-{step.index + 1}",
            )
        )
    return moments


def _acts(node: Node, length: int) -> list[Moment]:
    """What the ledger alone knows: people's acts. The engine's calls are on their rescue's page, step by step."""
    entries = ledger.timeline(node.cluster.name, node=node.name).exclude(actor__startswith="rescue ")
    look = looks.Look("", "off", "user")
    return [
        Moment(
            entry.at,
            "act",
            look,
            entry.verb,
            " · ".join(part for part in (entry.actor, entry.subject, _said(entry)) if part),
            "rescue" if entry.rescue else "",
            entry.rescue,
        )
        for entry in entries[:length]
    ]


def _said(entry: Entry) -> str:
    """The reason that was given; of a request that was refused, what it was and why it was refused."""
    if entry.verb != refusing.VERB:
        return str(entry.data.get("reason") or "")
    return f"{', '.join(entry.data['asked'])}: {entry.data['because']}"


def fault_name(kind: str, code: str) -> str:
    """How people say it: Xid 79, SXid 12028, check pciebw."""
    names = {"xid": "Xid", "sxid": "SXid", "storm": looks.GUARDS["storm"].label}
    return f"{names.get(kind, kind)} {code}"


@dataclass(frozen=True, slots=True)
class Why:
    """One answer to "why is this node not healing?": where to read on, and when it is asked again, if it is."""

    text: str
    page: str = ""
    record: int | None = None
    again_at: datetime | None = None


def why_not_healing(node: Node, *, state: str, open_incidents: Sequence[Incident], now: datetime) -> list[Why]:
    """What stands in the way, the widest reason first; none when it is healing or has nothing to heal."""
    rescue = Rescue.objects.filter(node=node, state__in=lifecycle.OPEN_RESCUE).first()
    if state == "healthy" or not (open_incidents or rescue or state == "attention"):
        return []
    held = rescues.held_back(rescue) if rescue is not None else ""
    if rescue is not None and held:
        text = _("Rescue %(number)d is held back: %(because)s") % {"number": rescue.pk, "because": held}
        return [Why(text, "rescue", rescue.pk, rescue.due_at), *_bounds(node, now=now)]
    if state == "healing":
        return []
    found = _bounds(node, now=now)
    left = Rescue.objects.filter(node=node, needs_human=True).first()
    if state == "attention" and left is not None:
        text = _("Rescue %(number)d left it to people: %(because)s") % {
            "number": left.pk,
            "because": left.because or left.outcome,
        }
        found.append(Why(text, "rescue", left.pk))
    return [*found, *_judgements(open_incidents)]


def _bounds(node: Node, *, now: datetime) -> list[Why]:
    """What holds for the node whatever is wrong with it: pause, exclusion, maintenance, a storm."""
    found = []
    mode, reason = fleet.mode_of(node.cluster)
    if mode in fleet.SILENT:
        said = looks.of("mode", mode).label
        found.append(Why(f"{said}: {reason}" if reason else str(said)))
    if node.labels.get(guards.EXCLUDE_LABEL) == "true":
        found.append(Why(str(looks.GUARDS["exclusion"].help)))
    for window in fleet.maintenance(node.cluster, now=now).filter(starts_at__lte=now):
        if window.node in ("", node.name) and window.pool in ("", node.pool):
            text = f"{looks.GUARDS['maintenance'].help} {window.reason}"
            found.append(Why(text, again_at=window.ends_at))
    storms = Incident.objects.filter(cluster=node.cluster, node=None, state=Incident.State.OPEN)
    found += [
        Why(
            _("It is part of a storm, which a person closes: %(symptom)s") % {"symptom": storm.code},
            "incident",
            storm.pk,
        )
        for storm in storms
        if node.name in storm.scope
    ]
    return found


def _judgements(open_incidents: Sequence[Incident]) -> list[Why]:
    """What was decided last about each open fault, where that was not a rescue."""
    keys = [one.pk for one in open_incidents]
    latest = {one.incident_id: one for one in Decision.objects.filter(incident__in=keys).order_by("pk")}
    found = []
    for incident in open_incidents:
        decision, name = latest.get(incident.pk), fault_name(incident.kind, incident.code)
        if decision is None:
            found.append(Why(_("%(fault)s was not judged yet.") % {"fault": name}, "incident", incident.pk))
        elif decision.answer != "rescue":
            text = f"{name}: {wording.sentence(decision.reasons)}"
            found.append(Why(text, "incident", incident.pk, incident.judge_at))
    return found
