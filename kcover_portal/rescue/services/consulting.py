"""Consulting: an external system is asked what to do about a fault, in good time; its silence is an answer, too.

Its answer is KCE's list of actions. It becomes a rule for this one judgement, so that modes, guards and approvals hold
it back as they would a policy's (invariant 11).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from kcover import decision, external, guards, reasons
from kcover.policy import matching
from kcover_portal import outgoing
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident

NAME = "external"  # what stands in a policy's place
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What came of asking. ``rule`` None: it wants nothing done, or said nothing; then ``silence`` says why.

    ``mode`` and ``url``: under which ``decision_mode`` of the cluster, and where, it was asked.
    """

    system: str
    mode: str
    url: str
    rule: matching.Candidate | None
    silence: str = ""
    reason: str = ""


def ask(incident: Incident, *, now: datetime) -> Word | None:
    """Asks the cluster's external system about an incident; None where there is none, or nothing to ask.

    Takes as long as the cluster's ``decision_timeout`` at most; never call it inside a transaction.
    """
    if incident.node is None or incident.program:
        return None
    cluster = incident.cluster
    if not asks(cluster) or not incident.node.known:
        return None
    system = urlsplit(cluster.decision_url).hostname or cluster.decision_url
    asked = {"system": system, "mode": cluster.decision_mode, "url": cluster.decision_url}
    try:
        answer = outgoing.post(
            cluster.decision_url,
            _question(incident, now=now),
            secret=cluster.decision_secret,
            seconds=cluster.decision_timeout,
        )
        return _read(answer.body, asked, now=now)
    except outgoing.Silent as silence:
        return Word(**asked, rule=None, silence=str(silence))


def stands(word: Word, cluster: Cluster) -> bool:
    """Whether the cluster still wants to be told by whom it was told: who decides may have changed meanwhile."""
    return (word.mode, word.url) == (cluster.decision_mode, cluster.decision_url)


def asks(cluster: Cluster) -> bool:
    """Whether an external system is asked about the cluster's faults."""
    return bool(cluster.decision_url) and cluster.decision_mode != Cluster.DecisionMode.POLICIES


def judged_by(word: Word, situation: decision.Situation, *, fallback: str) -> decision.Decision | None:
    """What is decided without asking the policies; None: they decide (the system was silent, and is replaced)."""
    if not word.silence:
        return decision.Decision(
            answer="none", because=(reasons.of("external_nothing", system=word.system),), mode=situation.cluster.mode
        )
    if fallback == Cluster.Fallback.POLICIES:
        return None
    silent = reasons.of("external_silent", system=word.system, why=word.silence)
    return decision.Decision(
        answer="hold", because=(silent,), mode=situation.cluster.mode, again_at=situation.now + guards.AGAIN
    )


def _question(incident: Incident, *, now: datetime) -> dict[str, Any]:
    assert incident.node is not None  # ask() saw to it
    return {
        "version": VERSION,
        "cluster": incident.cluster.name,
        "node": incident.node.name,
        "labels": incident.node.labels,
        "asked_at": now.isoformat(),
        "incident": {
            "id": incident.pk,
            "kind": incident.kind,
            "code": incident.code,
            "device": incident.device,
            "gpu_uuid": incident.gpu_uuid,
            "severity": incident.severity,
            "count": incident.count,
            "drill": incident.drill,
            "message": incident.message,
            "opened_at": incident.opened_at.isoformat(),
            "last_at": incident.last_at.isoformat(),
        },
    }


def _read(body: Any, asked: dict[str, str], *, now: datetime) -> Word:
    system = asked["system"]
    if not isinstance(body, dict) or not isinstance(body.get("actions"), list):
        return Word(**asked, rule=None, silence=f"{system} does not answer with a list of actions")
    if not body["actions"]:
        return Word(**asked, rule=None)
    try:
        rule = external.rule(body["actions"])
    except (external.ParameterError, external.PreconditionError) as error:
        return Word(**asked, rule=None, silence=f"{system}: {error}")
    candidate = matching.Candidate(policy=f"{NAME}:{system}", revision=0, created_at=now, rule=rule)
    return Word(**asked, rule=candidate)
