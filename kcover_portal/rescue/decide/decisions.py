"""Decide incidents: gather facts, decide, store the decisions, and open the rescues that they ask for.

Due incidents of a cluster are decided together, at most one of each node. Each decision counts the rescues that the
ones before it open (``queries.Situations``).
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from django.db import transaction

from kcover.decisions import decide as core
from kcover_portal.config import log_context
from kcover_portal.fleet import queries as fleet
from kcover_portal.incidents import queries as incident_queries, services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.rescue import queries
from kcover_portal.rescue.actions import cordon
from kcover_portal.rescue.decide import decision_rows, external_decider, shared_jobs, storm_rows
from kcover_portal.rescue.decide.decision_rows import DecidedCase, DecisionCase
from kcover_portal.rescue.decide.external_decider import ExternalAnswer
from kcover_portal.rescue.engine import batch, runner
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.step import lease, node_lock

log = logging.getLogger(__name__)

Clock = Callable[[], datetime]


def decide(
    incident_id: int, *, now: datetime, claimed: bool = False, external: ExternalAnswer | None = None
) -> Rescue | None:
    """Decide one open incident. Returns the rescue that was opened, None if none was.

    The node's row is locked meanwhile, so that two faults of one node are decided one after the other.

    ``claimed``: the caller runs the rescue at once, so it is opened as claimed by the caller. ``external``: the answer
    of the external decider.
    """
    opened = _decide([incident_id], clock=lambda: now, claimed=claimed, external=external).opened
    return opened[0][0].rescue if opened else None


def decide_and_run(
    incident_ids: Sequence[int],
    *,
    clock: Clock,
    gate: contextlib.AbstractContextManager[object] | None = None,
    threads: batch.Threads | None = None,
) -> list[int]:
    """Decide incidents of one cluster and run their rescues at once, which saves commits and messages.

    Returns those that were left out, because another incident of the same node was decided; they are still due.
    ``gate``: entered while the incidents are decided, and left before anything is asked or done. ``threads``: make the
    first calls to the cluster, and ask other systems, side by side. Incidents that cannot be decided together are
    decided one by one. Of several errors, the last is raised after everything else was done.
    """
    with gate or contextlib.nullcontext():
        decided = _decide_all(incident_ids, clock=clock)
    errors, calls = decided.errors, threads.calls if threads is not None else None
    errors += batch.run(decided.opened, threads=threads)
    to_ask = decided.to_ask
    if decided.jobs_unknown:
        shared_jobs.refresh(decided.jobs_unknown, now=clock(), calls=calls)
        after = _decide_all([row.pk for row in decided.jobs_unknown], clock=clock, jobs_known=True)
        errors += after.errors + batch.run(after.opened, threads=threads)
        to_ask = to_ask + after.to_ask
    query = partial(external_decider.query, now=clock())
    answers = calls.map(query, to_ask) if calls is not None else map(query, to_ask)
    for incident, answer in zip(to_ask, answers, strict=True):
        asked = _decide_all([incident.pk], clock=clock, external=answer, ask_first=False)
        errors += asked.errors + batch.run(asked.opened)
    if errors:
        raise errors[-1]
    return decided.left


@dataclass(slots=True, kw_only=True)
class _Round:
    """The result of one transaction. Other systems are asked outside of it, so some incidents are still due."""

    opened: list[runner.Begun] = field(default_factory=list)  # rescues that the caller has claimed, or that wait
    jobs_unknown: list[Incident] = field(default_factory=list)  # the cluster is asked for the jobs of faulty nodes
    to_ask: list[Incident] = field(default_factory=list)  # the external decider is asked
    left: list[int] = field(default_factory=list)  # another incident of the same node was decided
    errors: list[Exception] = field(default_factory=list)


def _decide_all(
    incident_ids: Sequence[int],
    *,
    clock: Clock,
    external: ExternalAnswer | None = None,
    ask_first: bool = True,
    jobs_known: bool = False,
) -> _Round:
    """Decides incidents together; if that fails, one by one, so that none is stuck because of another."""
    decide_these = partial(
        _decide, clock=clock, claimed=True, external=external, ask_first=ask_first, jobs_known=jobs_known
    )
    try:
        return decide_these(incident_ids)
    except Exception as error:
        if len(incident_ids) == 1:
            return _Round(errors=[error])
        log.exception("%d incidents could not be decided together", len(incident_ids))
    found = _Round()
    for pk in incident_ids:
        try:
            with log_context.bound(incident=pk):
                alone = decide_these([pk])
        except Exception as error:
            log.exception("incident %s could not be decided", pk)
            found.errors.append(error)
            continue
        found.opened += alone.opened
        found.jobs_unknown += alone.jobs_unknown
        found.to_ask += alone.to_ask
    return found


def _decide(
    incident_ids: Sequence[int],
    *,
    clock: Clock,
    claimed: bool,
    external: ExternalAnswer | None = None,
    ask_first: bool = False,
    jobs_known: bool = False,
) -> _Round:
    """Decides in one transaction.

    ``ask_first``: sets those incidents aside about which other systems have something to say; with ``jobs_known``, the
    cluster's jobs are not asked for again. ``external``: the answer about the only incident.
    """
    now, found = clock(), _Round()
    with transaction.atomic(), ledger.last():
        cases, found.left = _claim(incident_ids)
        if not cases:
            return found
        with log_context.bound(**_ids(cases)):
            if ask_first:
                cases = _set_aside(cases, found, jobs_known=jobs_known, now=now)
            if cases:
                found.opened = _answer_and_write(cases, external, clock=clock, claimed=claimed, now=now)
    return found


def _ids(cases: Sequence[DecisionCase]) -> dict[str, object]:
    """The ids of log lines about these decisions."""
    node = {"node": cases[0].node.name} if len(cases) == 1 else {}
    return {"cluster": cases[0].node.cluster.name, **node}


def _answer_and_write(
    cases: Sequence[DecisionCase], external: ExternalAnswer | None, *, clock: Clock, claimed: bool, now: datetime
) -> list[runner.Begun]:
    """Decides the cases and writes the answers; nothing if they are due again, because the decider has changed."""
    cluster, incident = cases[0].node.cluster, cases[0].incident.pk
    if external is not None and not external_decider.still_current(external, cluster):
        if external_decider.is_configured(cluster):
            doorbell.ring("rescue.decide", incident)  # still due: the present decider is asked next
            return []
        external = None
    decided = _answers(cases, external, now=now)
    # The cluster's settings may have changed while this transaction waited for the lock of the counts.
    if external is not None and not external_decider.still_current(external, cases[0].node.cluster):
        doorbell.ring("rescue.decide", incident)
        return []
    return _write(decided, clock=clock, claimed=claimed, now=now)


def _claim(incident_ids: Sequence[int]) -> tuple[list[DecisionCase], list[int]]:
    """Locks the nodes of incidents that are due, and reads their open incidents: one case for each node.

    The locks are taken in the order of the keys, so that two workers do not wait for each other. Also returns the
    incidents that were left out, because their node has another one among these, or for belonging to another cluster.
    """
    nodes = shared_jobs.locked_nodes(incident_ids)
    if not nodes:
        return [], []
    opened: dict[int, list[Incident]] = {node.pk: [] for node in nodes}
    for row in incident_queries.open_on_nodes([node.pk for node in nodes]):
        opened[row.node_id or 0].append(row)
    place = {pk: index for index, pk in enumerate(incident_ids)}
    cluster, left = nodes[0].cluster, []
    cases: list[DecisionCase] = []
    for node in nodes:
        due = [row for row in opened[node.pk] if row.pk in place and row.decide_at is not None]
        due.sort(key=lambda row: place[row.pk])
        of_cluster = node.cluster_id == cluster.pk
        left += [row.pk for row in due[1 if of_cluster else 0 :]]
        if not due or not of_cluster:
            continue
        incident, node.cluster = due[0], cluster
        incident.node, incident.cluster = node, cluster
        cases.append(DecisionCase(node=node, incident=incident, opened=opened[node.pk]))
    cases.sort(key=lambda case: place[case.incident.pk])  # slots go to the oldest faults
    return cases, left


def _set_aside(cases: Sequence[DecisionCase], found: _Round, *, jobs_known: bool, now: datetime) -> list[DecisionCase]:
    """The cases that can be decided now; other systems are asked about the rest first."""
    if not jobs_known:
        found.jobs_unknown = shared_jobs.due([case.incident for case in cases], now=now)
    unknown = {row.pk for row in found.jobs_unknown}
    rest = [case for case in cases if case.incident.pk not in unknown]
    found.to_ask = [case.incident for case in rest if external_decider.is_asked(case.incident)]
    asked = {row.pk for row in found.to_ask}
    return [case for case in rest if case.incident.pk not in asked]


def _answers(cases: Sequence[DecisionCase], external: ExternalAnswer | None, *, now: datetime) -> list[DecidedCase]:
    """Decide by the external decider's rule, by its silence, or by the policies. The same guards hold for all."""
    rule = external.rule if external is not None else None
    situations = queries.Situations(
        cases[0].node.cluster,
        [(case.node, case.incident) for case in cases],
        now=now,
        lock=True,
        mode=fleet.mode_beside(cases[0].node),
        rules=(rule,) if rule is not None else None,
        external_queried=external is not None,
    )
    decided = []
    for case in cases:
        situation, decision = situations.of(case.node), None
        if external is not None and rule is None:
            fallback = case.node.cluster.decision_fallback
            decision = external_decider.to_decision(external, situation, fallback=fallback)
        decision = decision or core.decide(situation)
        if decision.answer in ("rescue", "approve"):
            situations.add(case.node, decision)
        decided.append(DecidedCase(case=case, situation=situation, decision=decision))
    return decided


def _write(decided: Sequence[DecidedCase], *, clock: Clock, claimed: bool, now: datetime) -> list[runner.Begun]:
    """Writes decisions, rescues and ledger entries; returns the context and the steps of each opened rescue."""
    storms, cluster = storm_rows.keep(decided), decided[0].case.node.cluster.name
    still_open = incidents.mark_decided(
        [
            incidents.DecidedIncident(
                incident=it.case.incident, labels=it.case.node.labels, again_at=it.decision.again_at
            )
            for it in decided
        ],
        now=now,
    )
    # A person may have taken a node back since its incidents were read.
    decided = [it for it in decided if it.case.incident.pk in still_open]
    if not decided:
        ledger.append(cluster, storms)
        return []
    stored = decision_rows.store(decided, now=now)
    # The lease runs from this moment, however long this transaction waited for the locks before. Of several rescues,
    # those are claimed that begin with one short call; the others are left to the workers.
    lease_until = clock() + lease.TIME if claimed else None
    openings = {
        it.case.node.pk: create.opening_by_policy(
            it.decision,
            kept.row,
            node=it.case.node,
            incident=it.case.incident,
            opened=it.case.opened,
            now=now,
            lease_until=lease_until if _may_run(it, alone=len(decided) == 1, now=now) else None,
            begins=cordon.comes_first(it.decision.steps),
        )
        for it, kept in zip(decided, stored, strict=True)
        if it.decision.answer in ("rescue", "approve")
    }
    created = dict(zip(openings, create.save(list(openings.values())), strict=True)) if openings else {}
    opened, drafts = [], []
    for it, kept in zip(decided, stored, strict=True):
        drafts += kept.drafts
        new = created.get(it.case.node.pk)
        if new is not None:
            context = runner.context_of(new.rescue, new.steps[0], new.steps, clock=clock)
            opened.append((context, new.steps))
            drafts += [*new.drafts, *(cordon.begin(context) if new.rescue.calls_begun else ())]
    ledger.append(cluster, [*drafts, *storms])
    return opened


def _may_run(decided: DecidedCase, *, alone: bool, now: datetime) -> bool:
    """Returns whether the rescue that is opened may be claimed with its opening."""
    begins_short = alone or cordon.comes_first(decided.decision.steps)
    return begins_short and not node_lock.is_locked(decided.case.node, now=now)
