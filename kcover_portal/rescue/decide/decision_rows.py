"""Store decisions, those of one transaction together."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from kcover import audit, reasons
from kcover.decisions import decide as core, guards, match
from kcover.faults import catalog
from kcover.faults.fault import NUMERIC_KINDS
from kcover.values import digests
from kcover_portal import tracing
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.models import Decision
from kcover_portal.rescue.queries import last_decisions

OPENS = ("rescue", "approve")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionCase:
    """An incident that is decided, its node, and the open incidents of the node."""

    node: Node
    incident: Incident
    opened: Sequence[Incident]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedCase:
    """A case with its decision and the facts that the decision depends on."""

    case: DecisionCase
    situation: core.Situation
    decision: core.Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """The row of a decision, and its ledger entries, which the caller must append."""

    row: Decision
    drafts: list[ledger.Draft]


def store(decided: Sequence[DecidedCase], *, now: datetime) -> list[StoredDecision]:
    """Store decisions. One that differs from its incident's last only in numbers raises that one's count instead."""
    # The caller holds the nodes' locks, so that the counts are not lost.
    last = last_decisions.of([it.case.incident for it in decided if it.case.incident.decided_at is not None])
    rows, new, repeated = [], [], []
    for it in decided:
        before = last.get(it.case.incident.pk)
        if before is not None and _repeats(it.decision, before):
            before.count, before.last_at = before.count + 1, now
            before.because = [reason.to_json() for reason in it.decision.because]
            before.needs_person = it.decision.needs_person  # an older portal may have stored the row without it
            repeated.append(before)
            rows.append(before)
        else:
            new.append(_row(it, now=now))
            rows.append(new[-1])
    if new:
        Decision.objects.bulk_create(new)
    if repeated:
        Decision.objects.bulk_update(repeated, ["count", "last_at", "because", "needs_person"])
    fresh = {row.pk for row in new}
    if tracing.is_on():
        transaction.on_commit(partial(_trace, list(zip(decided, rows, strict=True)), now=now), robust=True)
    stored = zip(decided, rows, strict=True)
    return [StoredDecision(row=row, drafts=[_made(it, row, now=now)] if row.pk in fresh else []) for it, row in stored]


def _trace(stored: Sequence[tuple[DecidedCase, Decision]], *, now: datetime) -> None:
    for it, row in stored:
        node = it.case.node
        tracing.record(
            tracing.incident(it.case.incident.pk),
            "decide",
            began=now,
            decision=row.pk,
            answer=it.decision.answer,
            cluster=node.cluster.name,
            node=node.name,
        )


def _repeats(decision: core.Decision, last: Decision) -> bool:
    """A decision that opens a rescue is never a repetition, because its facts are part of the rescue's proof."""
    if decision.answer in OPENS:
        return False
    same = (last.answer, last.revision) == (decision.answer, decision.revision)
    return same and reasons.same_but_for_numbers(last.reasons, decision.because)


def _row(it: DecidedCase, *, now: datetime) -> Decision:
    decision, node = it.decision, it.case.node
    return Decision(
        cluster=node.cluster,
        node=node,
        incident=it.case.incident,
        answer=decision.answer,
        mode=decision.mode,
        rule=decision.rule or "",
        policy=decision.policy or "",
        revision=decision.revision,
        because=[reason.to_json() for reason in decision.because],
        needs_person=decision.needs_person,
        tried=[
            {"rule": tried.rule, "matched": tried.matched, "because": tried.because.to_json()}
            for tried in decision.tried
        ],
        steps=[{"name": step.name, "args": dict(step.args)} for step in decision.steps],
        facts={**_facts(it.situation), "passed": [reason.to_json() for reason in decision.passed]},
        at=now,
        last_at=now,
    )


def _made(it: DecidedCase, row: Decision, *, now: datetime) -> ledger.Draft:
    decision, node = it.decision, it.case.node
    act = audit.DecisionMade(
        incident=it.case.incident.pk,
        node=node.name,
        decision=row.pk,
        answer=audit.DecisionAnswer(decision.answer),
        mode=decision.mode,
        revision=decision.revision,
        because=tuple(decision.because),
        facts=digests.digest(row.facts) if decision.answer in OPENS else "",
    )
    doorbell.publish("decision", row.pk, cluster=node.cluster.name)
    return ledger.Draft(act=act, actor=create.by_rule(decision.rule) if decision.rule else "system", at=now)


def _facts(situation: core.Situation) -> dict[str, Any]:
    """The facts as plain JSON. Policy and revision identify the rules, because a revision never changes.

    ``program_fault`` and ``cataloged``: what the catalog of codes says about the fault. ``candidates``: the digest of
    the rules, as ``match.to_json`` writes them.
    """
    fault = situation.fault
    seen, numeric = fault.last_seen_at, fault.kind in NUMERIC_KINDS
    return {
        "now": situation.now.isoformat(),
        "fault": {
            **asdict(fault),
            "last_seen_at": seen.isoformat() if seen else None,
            "seen_within": {str(seconds): count for seconds, count in fault.seen_within.items()},
        },
        "program_fault": numeric
        and catalog.is_user_fault(fault.kind, int(fault.code), cause=fault.cause, fatal=fault.fatal),
        "cataloged": numeric and catalog.describe(fault.kind, int(fault.code)) is not None,
        "node": asdict(situation.node),
        "cluster": asdict(situation.cluster),
        "settings": guards.recorded(situation.settings, situation.counts),
        "external_queried": situation.external_queried,
        "counts": situation.counts.to_json() if situation.counts else None,
        "rules": [
            {"policy": policy, "revision": revision}
            for policy, revision in sorted({(c.policy, c.revision) for c in situation.rules})
        ],
        "candidates": match.digest_of(situation.rules),
        # The rule of an external decider is in no policy.
        **({"given": match.to_json(situation.rules)} if any(c.external for c in situation.rules) else {}),
    }
