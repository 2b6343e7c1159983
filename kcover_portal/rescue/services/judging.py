"""Judging: facts in, a kept decision out, and a rescue if that is the answer."""

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F

from kcover import decision as kernel
from kcover import guards, reasons
from kcover_portal import doorbell
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.actions import cordon, turns
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.rescue.queries import counts
from kcover_portal.rescue.services import comparing, consulting, opening, running


def judge(
    incident_id: int, *, now: datetime, lease: bool = False, word: consulting.Word | None = None
) -> Rescue | None:
    """Judges one open incident; returns the rescue that was opened, if one was.

    The node's row is locked meanwhile, so that two faults of one node are judged one after the other. ``lease``: the
    rescue is opened as claimed by the caller, who goes on with it (``running.go_on``). ``word``: what an external
    system said that was asked.
    """
    context = _judge(incident_id, clock=lambda: now, lease=lease, word=word)
    return context.rescue if context is not None else None


def _judge(
    incident_id: int, *, clock: Callable[[], datetime], lease: bool, word: consulting.Word | None
) -> Context | None:
    now = clock()
    with transaction.atomic(), ledger.last():
        rows = Node.objects.select_for_update(of=("self",), no_key=True).select_related("cluster")
        node = rows.filter(incidents=incident_id).first()
        if node is None:
            return None
        incident = Incident.objects.get(pk=incident_id)
        if incident.state != Incident.State.OPEN or incident.judge_at is None:
            return None
        incident.cluster = node.cluster
        if word is not None and not consulting.stands(word, node.cluster):
            if consulting.asks(node.cluster):
                doorbell.ring("rescue.judge", incident.pk)  # it is still due: whoever decides now is asked
                return None
            word = None
        situation, judged = _decide(node, incident, word, now=now)
        if word is not None and not consulting.stands(word, node.cluster):  # changed while it queued for the counts
            doorbell.ring("rescue.judge", incident.pk)
            return None
        incidents.mark_judged(incident, labels=node.labels, now=now, again_at=judged.again_at)
        row, drafts = keep(judged, situation, node=node, incident=incident, now=now)
        context = None
        if judged.answer in ("rescue", "approve"):
            chosen = next(one for one in situation.rules if one.name == judged.rule)
            laid = opening.open_by_policy(
                judged,
                row,
                node=node,
                incident=incident,
                chosen=chosen,
                now=now,
                # From this moment on, however long it queued for the node and for the counts.
                lease_until=clock() + turns.LEASE if lease and not turns.runs(node, now=now) else None,
                drafts=drafts,
            )
            context = running.context_of(laid.rescue, laid.steps[0], clock=clock)
            drafts = laid.drafts if laid.rescue.lease_until is None else [*laid.drafts, *cordon.begin(context)]
        elif judged.storm is not None:
            drafts = [*drafts, *_storm(node, situation, judged.storm)]
        ledger.append(node.cluster.name, drafts)
    return context


def _storm(node: Node, situation: kernel.Situation, storm: guards.Storm) -> list[ledger.Draft]:
    """Keeps the storm's one incident; what the ledger is to say of it, if it is new."""
    symptom, fault, now = storm.symptom, situation.fault, situation.now
    since = now - situation.settings.storm.window
    names = counts.storm_nodes(node, fault.kind, fault.code, symptom=symptom, since=since)
    code = counts.storm_code(symptom.trait, symptom.value)
    row, opened = incidents.keep_storm(node.cluster, kind=counts.STORM, code=code, nodes=names, now=now)
    if not opened:
        return []
    data = {"trait": symptom.trait, "value": symptom.value, "nodes": symptom.nodes, "reached": storm.reached}
    return [
        ledger.Draft(actor="system", verb="storm.opened", subject=f"incident {row.pk}", at=now, data=data),
    ]


def _decide(
    node: Node, incident: Incident, word: consulting.Word | None, *, now: datetime
) -> tuple[kernel.Situation, kernel.Decision]:
    """By the policies, or by what an external system said, under the same guards."""
    if word is not None and word.rule is not None:
        situation = queries.situation(node, incident, now=now, lock=True, rules=(word.rule,))
        situation = replace(situation, cluster=replace(situation.cluster, decision_mode="both"))
        return situation, kernel.decide(situation)
    situation = queries.situation(node, incident, now=now, lock=True)
    if word is not None:
        judged = consulting.judged_by(word, situation, fallback=node.cluster.decision_fallback)
        if judged is not None:
            return situation, judged
        situation = replace(situation, cluster=replace(situation.cluster, decision_mode="both"))
    return situation, kernel.decide(situation)


def judge_and_run(incident_id: int, *, clock: Callable[[], datetime]) -> None:
    """Judges an incident and goes on at once with what came of it: no second commit, no second message."""
    due = Incident.objects.filter(pk=incident_id, state=Incident.State.OPEN, judge_at__isnull=False)
    incident = due.select_related("node", "cluster").first()
    if incident is None:
        return
    comparing.look(incident, now=clock())
    word = consulting.ask(incident, now=clock())
    context = _judge(incident_id, clock=clock, lease=True, word=word)
    if context is not None and context.rescue.lease_until is not None:
        running.go_on(context.rescue, clock=clock, first=context)


def keep(
    judged: kernel.Decision, situation: kernel.Situation, *, node: Node, incident: Incident, now: datetime
) -> tuple[Decision, list[ledger.Draft]]:
    """Keeps a decision; one that is like the incident's last raises its count and brings its figures instead.

    Returns the row and what the ledger is to say of it.
    """
    because = [reason.to_json() for reason in judged.because]
    judged_before = incident.judged_at is not None
    last = Decision.objects.filter(incident=incident).order_by("-pk").first() if judged_before else None
    same = last is not None and (last.answer, last.revision) == (judged.answer, judged.revision)
    if last is not None and same and reasons.alike(last.reasons, judged.because):
        Decision.objects.filter(pk=last.pk).update(count=F("count") + 1, last_at=now, because=because)
        return last, []
    row = Decision.objects.create(
        cluster=node.cluster,
        node=node,
        incident=incident,
        answer=judged.answer,
        mode=judged.mode,
        rule=judged.rule or "",
        policy=judged.policy or "",
        revision=judged.revision,
        because=because,
        tried=[{"rule": one.rule, "matched": one.matched, "because": one.because.to_json()} for one in judged.tried],
        steps=[{"name": step.name, "args": dict(step.args)} for step in judged.steps],
        facts={**_facts(situation), "passed": [reason.to_json() for reason in judged.passed]},
        at=now,
        last_at=now,
    )
    draft = ledger.Draft(
        actor=opening.by_rule(judged.rule) if judged.rule else "system",
        verb=f"decision.{judged.answer}",
        subject=f"incident {incident.pk}",
        node=node.name,
        at=now,
        data={
            "because": [str(reason) for reason in judged.because],
            "decision": row.pk,
            "mode": judged.mode,
            "revision": judged.revision,
        },
    )
    doorbell.tell("decision", row.pk, cluster=node.cluster.name)
    return row, [draft]


def _facts(situation: kernel.Situation) -> dict[str, Any]:
    """The facts as plain JSON; rules are named by policy and revision, which never change."""
    seen = situation.fault.last_seen_at
    return {
        "now": situation.now.isoformat(),
        "fault": {**asdict(situation.fault), "last_seen_at": seen.isoformat() if seen else None},
        "node": asdict(situation.node),
        "cluster": asdict(situation.cluster),
        "counts": situation.counts.to_json() if situation.counts else None,
        "rules": sorted({f"{c.policy}@{c.revision}" for c in situation.rules}),
    }
