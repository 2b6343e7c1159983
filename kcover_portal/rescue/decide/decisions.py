"""Decide incidents: gather facts, decide, store the decision, and open the rescue if that is the answer."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F

from kcover import audit, reasons
from kcover.decisions import decide as core
from kcover.decisions import guards
from kcover_portal import doorbell
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import queries as incident_queries
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.actions import cordon
from kcover_portal.rescue.decide import external_decider, shared_jobs
from kcover_portal.rescue.decide.external_decider import ExternalAnswer
from kcover_portal.rescue.engine import runner
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.rescue.queries import symptoms
from kcover_portal.rescue.step import node_lock


def decide(
    incident_id: int, *, now: datetime, lease: bool = False, external: ExternalAnswer | None = None
) -> Rescue | None:
    """Decide one open incident. Returns the rescue that was opened, None if none was.

    The node's row is locked meanwhile, so that two faults of one node are decided one after the other. ``lease``: open
    the rescue as claimed by the caller, who runs it at once. ``external``: the answer of the external decider.
    """
    opened = _decide(incident_id, clock=lambda: now, lease=lease, external=external)
    return opened[0].rescue if opened is not None else None


def decide_and_run(incident_id: int, *, clock: Callable[[], datetime]) -> None:
    """Decides an incident and runs its rescue at once, which saves a commit and a message."""
    try:
        opened = _decide(incident_id, clock=clock, lease=True, external=None, ask_first=True)
    except _AskFirst as needed:
        if needed.jobs:
            shared_jobs.refresh(needed.incident, now=clock())
        external = external_decider.query(needed.incident, now=clock())
        opened = _decide(incident_id, clock=clock, lease=True, external=external)
    if opened is not None and opened[0].rescue.lease_until is not None:
        runner.go_on(opened[0].rescue, clock=clock, first=opened)


class _AskFirst(Exception):
    """Other systems are asked about the incident before it is decided, and outside the transaction."""

    def __init__(self, incident: Incident, *, jobs: bool) -> None:
        self.incident, self.jobs = incident, jobs  # jobs: the cluster is asked for the jobs of its faulty nodes


def _decide(
    incident_id: int,
    *,
    clock: Callable[[], datetime],
    lease: bool,
    external: ExternalAnswer | None,
    ask_first: bool = False,
) -> runner.Begun | None:
    """Decides in one transaction; returns the context and the steps of the rescue that was opened.

    ``ask_first``: raises _AskFirst, with nothing written, if other systems have something to say.
    """
    now = clock()
    with transaction.atomic(), ledger.last():
        rows = fleet.with_mode(Node.objects.select_for_update(of=("self",), no_key=True))
        node = shared_jobs.with_others(rows).filter(incidents=incident_id).first()
        if node is None:
            return None
        opened = list(incident_queries.open_on(node))
        incident = next((row for row in opened if row.pk == incident_id), None)
        if incident is None or incident.decide_at is None:
            return None
        incident.node, incident.cluster = node, node.cluster
        jobs_due = ask_first and shared_jobs.is_due(incident, now=now)
        if jobs_due or (ask_first and external_decider.is_asked(incident)):
            raise _AskFirst(incident, jobs=jobs_due)
        if external is not None and not external_decider.still_current(external, node.cluster):
            if external_decider.is_configured(node.cluster):
                doorbell.ring("rescue.decide", incident.pk)  # still due: the decider configured now is asked next
                return None
            external = None
        situation, decision = _answer(node, incident, external, now=now)
        # The cluster's settings may have changed while this transaction waited for the lock of the counts.
        if external is not None and not external_decider.still_current(external, node.cluster):
            doorbell.ring("rescue.decide", incident.pk)
            return None
        incidents.mark_decided(incident, labels=node.labels, now=now, again_at=decision.again_at)
        row, drafts = store_decision(decision, situation, node=node, incident=incident, now=now)
        begun = None
        if decision.answer in ("rescue", "approve"):
            # The lease runs from this moment, however long this transaction waited for the locks before.
            leased = lease and not node_lock.is_locked(node, now=now)
            lease_until = clock() + node_lock.LEASE_TIME if leased else None
            created = create.open_by_policy(
                decision,
                row,
                node=node,
                incident=incident,
                opened=opened,
                now=now,
                lease_until=lease_until,
                begins=cordon.comes_first(decision.steps),
                drafts=drafts,
            )
            context = runner.context_of(created.rescue, created.steps[0], clock=clock)
            begun = (context, created.steps)
            drafts = [*created.drafts, *cordon.begin(context)] if context.rescue.calls_begun else created.drafts
        elif decision.storm is not None:
            drafts = [*drafts, *_open_storm(node, situation, decision.storm)]
        ledger.append(node.cluster.name, drafts)
    return begun


def _answer(
    node: Node, incident: Incident, external: ExternalAnswer | None, *, now: datetime
) -> tuple[core.Situation, core.Decision]:
    """Decide by the external decider's rule, by its silence, or by the policies. The same guards hold for all."""
    mode = fleet.mode_beside(node)
    if external is not None and external.rule is not None:
        situation = queries.situation(
            node, incident, now=now, lock=True, mode=mode, rules=(external.rule,), external_asked=True
        )
        return situation, core.decide(situation)
    situation = queries.situation(node, incident, now=now, lock=True, mode=mode, external_asked=external is not None)
    if external is not None:
        decision = external_decider.to_decision(external, situation, fallback=node.cluster.decision_fallback)
        if decision is not None:
            return situation, decision
    return situation, core.decide(situation)


def _open_storm(node: Node, situation: core.Situation, storm: guards.Storm) -> list[ledger.Draft]:
    """Record the storm's one incident. Returns the ledger entry, if the storm is new."""
    symptom, fault, now = storm.symptom, situation.fault, situation.now
    since = now - situation.settings.storm.window
    shown = symptoms.Fault(node=node, kind=fault.kind, code=fault.code, since=since)
    names = symptoms.storm_nodes(shown, symptom=symptom)
    code = symptoms.storm_code(symptom.trait, symptom.value)
    row, opened = incidents.keep_storm(node.cluster, kind=symptoms.STORM, code=code, nodes=names, now=now)
    if not opened:
        return []
    act = audit.StormOpened(
        incident=row.pk, trait=symptom.trait, value=symptom.value, nodes=symptom.nodes, reached=storm.reached
    )
    return [ledger.Draft(act=act, actor="system", at=now)]


def store_decision(
    decision: core.Decision, situation: core.Situation, *, node: Node, incident: Incident, now: datetime
) -> tuple[Decision, list[ledger.Draft]]:
    """Store a decision. One that differs from the incident's last only in numbers raises its count instead.

    Returns the row and its ledger entries.
    """
    because = [reason.to_json() for reason in decision.because]
    decided_before = incident.decided_at is not None
    last = Decision.objects.filter(incident=incident).order_by("-pk").first() if decided_before else None
    repeated = last is not None and (last.answer, last.revision) == (decision.answer, decision.revision)
    if last is not None and repeated and reasons.same_but_for_numbers(last.reasons, decision.because):
        Decision.objects.filter(pk=last.pk).update(count=F("count") + 1, last_at=now, because=because)
        return last, []
    row = Decision.objects.create(
        cluster=node.cluster,
        node=node,
        incident=incident,
        answer=decision.answer,
        mode=decision.mode,
        rule=decision.rule or "",
        policy=decision.policy or "",
        revision=decision.revision,
        because=because,
        tried=[
            {"rule": tried.rule, "matched": tried.matched, "because": tried.because.to_json()}
            for tried in decision.tried
        ],
        steps=[{"name": step.name, "args": dict(step.args)} for step in decision.steps],
        facts={**_facts(situation), "passed": [reason.to_json() for reason in decision.passed]},
        at=now,
        last_at=now,
    )
    act = audit.DecisionMade(
        incident=incident.pk,
        node=node.name,
        decision=row.pk,
        answer=audit.Decided(decision.answer),
        mode=decision.mode,
        revision=decision.revision,
        because=tuple(decision.because),
    )
    doorbell.publish("decision", row.pk, cluster=node.cluster.name)
    return row, [ledger.Draft(act=act, actor=create.by_rule(decision.rule) if decision.rule else "system", at=now)]


def _facts(situation: core.Situation) -> dict[str, Any]:
    """The facts as plain JSON. Policy and revision identify the rules, because a revision never changes."""
    seen = situation.fault.last_seen_at
    return {
        "now": situation.now.isoformat(),
        "fault": {**asdict(situation.fault), "last_seen_at": seen.isoformat() if seen else None},
        "node": asdict(situation.node),
        "cluster": asdict(situation.cluster),
        "external_asked": situation.external_asked,
        "counts": situation.counts.to_json() if situation.counts else None,
        "rules": sorted({f"{c.policy}@{c.revision}" for c in situation.rules}),
    }
