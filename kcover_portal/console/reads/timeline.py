"""One node's story: faults, decisions, steps and ledger entries merged, newest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from kcover_portal.console import looks, wording
from kcover_portal.console.reads import rescues
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import queries as ledger
from kcover_portal.rescue.models import Decision, Rescue, Step

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
            " · ".join(part for part in (entry.actor, entry.subject, str(entry.data.get("reason") or "")) if part),
            "rescue" if entry.rescue else "",
            entry.rescue,
        )
        for entry in entries[:length]
    ]


def fault_name(kind: str, code: str) -> str:
    """How people say it: Xid 79, SXid 12028, check pciebw."""
    return f"{ {'xid': 'Xid', 'sxid': 'SXid'}.get(kind, kind) } {code}"


def why_not_healing(node: Node, *, state: str, open_incidents: Sequence[Incident]) -> list[str]:
    """Sentences that answer "why is this node not healing?"; none when it is healing or has nothing to heal."""
    if state in ("healing", "healthy"):
        return []
    sentences = []
    rescue = Rescue.objects.filter(node=node, needs_human=True).first()
    if state == "attention" and rescue is not None:
        sentences.append(
            _("Rescue %(number)d left it to people: %(because)s")
            % {"number": rescue.pk, "because": rescue.because or rescue.outcome}
        )
    latest = {
        decision.incident_id: decision
        for decision in Decision.objects.filter(incident__in=[one.pk for one in open_incidents]).order_by("pk")
    }
    for incident in open_incidents:
        decision = latest.get(incident.pk)
        name = fault_name(incident.kind, incident.code)
        if decision is None:
            sentences.append(_("%(fault)s was not judged yet.") % {"fault": name})
        elif decision.answer != "rescue":
            sentences.append(f"{name}: {wording.sentence(decision.reasons)}")
    return sentences
