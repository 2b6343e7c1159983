"""Ask a cluster's external decider what to do about a fault.

The answer is KCE's list of actions. It becomes the only rule of this one decision, so modes, guards and approvals hold
it back like a policy's rule (invariant 11). If no answer comes, the cluster's fallback decides.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from kcover import reasons
from kcover.decisions import decide, guards, match
from kcover.plans import kce_actions
from kcover_portal.encryption import SecretUnreadable
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.lib import outgoing

NAME = "external"  # used in place of the policy's name
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAnswer:
    """The decider's answer. ``rule`` None: nothing is to be done, or there was no answer; then ``silence`` says why.

    ``mode``, ``url``: the cluster's ``decision_mode`` and address at the time of the query.
    """

    system: str
    mode: str
    url: str
    rule: match.Candidate | None
    silence: reasons.Reason | None = None
    reason: str = ""


def query(incident: Incident, *, now: datetime) -> ExternalAnswer | None:
    """Query the cluster's external decider about an incident. None if none is configured or none applies.

    Takes at most the cluster's ``decision_timeout``. Never call it inside a transaction.
    """
    if not is_asked(incident):
        return None
    cluster = incident.cluster
    system = urlsplit(cluster.decision_url).hostname or cluster.decision_url
    origin: dict[str, Any] = {"system": system, "mode": cluster.decision_mode, "url": cluster.decision_url}
    try:
        answer = outgoing.post(
            cluster.decision_url,
            _question(incident, now=now),
            secret=cluster.decision_secret,
            seconds=cluster.decision_timeout,
        )
        return _read(answer.body, origin, now=now)
    except (outgoing.NoResponse, SecretUnreadable) as silence:
        return ExternalAnswer(**origin, rule=None, silence=silence.reason)


def still_current(answer: ExternalAnswer, cluster: Cluster) -> bool:
    """Returns whether the decider that answered is still the one that the cluster is configured to ask."""
    return (answer.mode, answer.url) == (cluster.decision_mode, cluster.decision_url)


def is_configured(cluster: Cluster) -> bool:
    """Returns whether an external decider is asked about the cluster's faults."""
    return bool(cluster.decision_url) and cluster.decision_mode != Cluster.DecisionMode.POLICIES


def is_asked(incident: Incident) -> bool:
    """Returns whether the decider is asked about this incident: not about user faults and unknown nodes."""
    node = incident.node
    return node is not None and not incident.is_user_fault and node.in_cluster and is_configured(incident.cluster)


def to_decision(answer: ExternalAnswer, situation: decide.Situation, *, fallback: str) -> decide.Decision | None:
    """The decision that needs no policies. None: the decider was silent, and the policies stand in for it."""
    if answer.silence is None:
        return decide.Decision(
            answer="none", because=(reasons.of("external_nothing", system=answer.system),), mode=situation.cluster.mode
        )
    if fallback == Cluster.Fallback.POLICIES:
        return None
    silent = reasons.of("external_silent", system=answer.system, why=answer.silence)
    return decide.Decision(
        answer="hold", because=(silent,), mode=situation.cluster.mode, again_at=situation.now + guards.REDECIDE_AFTER
    )


def _question(incident: Incident, *, now: datetime) -> dict[str, Any]:
    assert incident.node is not None  # query() checked it
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


def _read(body: Any, origin: dict[str, Any], *, now: datetime) -> ExternalAnswer:
    system = origin["system"]
    if not isinstance(body, dict) or not isinstance(body.get("actions"), list):
        return ExternalAnswer(**origin, rule=None, silence=reasons.of("actions_missing", system=system))
    if not body["actions"]:
        return ExternalAnswer(**origin, rule=None)
    try:
        rule = kce_actions.to_rule(body["actions"])
    except (kce_actions.ParameterError, kce_actions.PreconditionError) as error:
        return ExternalAnswer(
            **origin, rule=None, silence=reasons.of("actions_invalid", system=system, problem=error.reason)
        )
    candidate = match.Candidate(policy=f"{NAME}:{system}", revision=0, created_at=now, rule=rule, external=True)
    return ExternalAnswer(**origin, rule=candidate)
