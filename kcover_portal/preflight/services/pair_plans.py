"""Pair tests that the portal runs: a plan is rounds of pairs, then confirmations of suspects, then a verdict.

A worker holds the plan's lease while it calls the cluster. Each state change is a conditional update, so a worker that
comes back late changes nothing. A test without an answer is no failure: only a measured bandwidth counts.
"""

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from kcover import audit, reasons
from kcover.decisions import guards
from kcover.preflight import pair_tests, rounds
from kcover.quote import short_text
from kcover_portal import doorbell
from kcover_portal.errors import FieldError
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.preflight.models import PairPlan, PairTest
from kcover_portal.preflight.services import pair_jobs, pair_verdicts

log = logging.getLogger(__name__)

MAX_NODES = 512  # of one plan
MAX_ROUNDS = 15
MAX_RUNNING_PLANS = 4  # in one cluster
MAX_RUNNING_TESTS = 32  # of one plan
THRESHOLD_GBPS = 350.0  # GB/s of bus bandwidth between two nodes
LEASE = timedelta(seconds=120)  # longer than one step's calls of the cluster
MAX_NAMED_NODES = 50  # in an entry of the audit log

State, TestState = PairPlan.State, PairTest.State


class PlanRefused(reasons.ExplainedError):
    """The request conflicts with the present state: the plan is over, too many are running, or the mode forbids it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked for. ``rule``: one of PairPlan.Rule. ``threshold``: GB/s."""

    rounds: int = pair_tests.ROUNDS
    rule: str = PairPlan.Rule.CONFIRMED
    threshold: float = THRESHOLD_GBPS
    reason: str = ""


def begin(cluster: Cluster, nodes: Sequence[Node], wish: Wish, *, actor: str, now: datetime) -> PairPlan:
    """Plans the rounds of these nodes and begins them. Raises FieldError, PlanRefused."""
    _check(cluster, nodes, wish, now=now)
    keys = {node.name: node for node in nodes}
    domains = {name: leaf for name, node in keys.items() if (leaf := fleet.topology_of(node)["leaf"])}
    pairs = rounds.pair(keys, wish.rounds, domains=domains)
    with transaction.atomic():
        Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        if PairPlan.objects.filter(cluster=cluster, state=State.RUNNING).count() >= MAX_RUNNING_PLANS:
            raise PlanRefused(reasons.of("pair_plans_full", count=MAX_RUNNING_PLANS, cluster=cluster.name))
        plan = PairPlan.objects.create(
            cluster=cluster,
            rule=wish.rule,
            rounds=wish.rounds,
            threshold=wish.threshold,
            image=cluster.nccl_image,
            gpus=min(node.gpus for node in nodes),
            domains=domains,
            reason=wish.reason,
            requested_by=actor,
            requested_at=now,
        )
        found = [
            (number, keys[first], keys[second]) for number, each in enumerate(pairs, start=1) for first, second in each
        ]
        PairTest.objects.bulk_create(
            PairTest(plan=plan, place=place, round=number, first=first, second=second)
            for place, (number, first, second) in enumerate(found)
        )
        act = audit.PairPlanRequested(
            pair_plan=plan.pk,
            rule=plan.rule,
            rounds=plan.rounds,
            threshold=plan.threshold,
            image=plan.image,
            nodes=tuple(sorted(keys)[:MAX_NAMED_NODES]),
            count=len(keys),
            reason=wish.reason,
        )
        ledger.record(cluster.name, act, actor=actor, now=now)
        doorbell.ring("preflight.advance_plan", plan.pk)
    return plan


def advance(plan_id: int, *, now: datetime) -> None:
    """Takes a plan one step further: reads what has ended, begins what is due. Safe to call at any time."""
    rows = PairPlan.objects.filter(pk=plan_id, state=State.RUNNING)
    free = rows.filter(Q(busy_until=None) | Q(busy_until__lte=now))
    mine = now + LEASE + timedelta(microseconds=uuid.uuid4().int % 1_000_000)  # tells this worker's lease from others'
    if not free.update(busy_until=mine):
        return
    held = PairPlan.objects.filter(pk=plan_id, busy_until=mine)
    plan = held.select_related("cluster").first()
    try:
        if plan is not None and fleet.mode_now(plan.cluster)[0] not in fleet.MODES_WITHOUT_WRITES:
            _advance(plan, now=now)
    except port.KubeError as error:
        log.warning("%s waits: %s", plan, error)
    finally:
        held.update(busy_until=None)


def cancel(plan: PairPlan, *, actor: str, reason: str, now: datetime) -> None:
    """Ends a plan without a verdict. Raises PlanRefused if it has ended."""
    with transaction.atomic():
        rows = PairPlan.objects.filter(pk=plan.pk, state=State.RUNNING)
        if not rows.update(state=State.CANCELLED, finished_at=now):
            raise PlanRefused(reasons.of("pair_plan_ended", plan=str(plan.pk)))
        act = audit.PairPlanCancelled(pair_plan=plan.pk, reason=reason)
        ledger.record(plan.cluster.name, act, actor=actor, now=now)
        doorbell.publish("preflight", plan.pk, cluster=plan.cluster.name)
    if fleet.mode_now(plan.cluster)[0] not in fleet.MODES_WITHOUT_WRITES:
        pair_jobs.drop(plan, _with_nodes(plan, TestState.RUNNING))


def _check(cluster: Cluster, nodes: Sequence[Node], wish: Wish, *, now: datetime) -> None:
    """Raises FieldError, PlanRefused."""
    if not 1 <= wish.rounds <= MAX_ROUNDS:
        raise FieldError("rounds", reasons.of("pair_rounds", most=MAX_ROUNDS, value=wish.rounds))
    if wish.rule not in PairPlan.Rule.values:
        known = ", ".join(PairPlan.Rule.values)
        raise FieldError("rule", reasons.of("pair_rule", known=known, value=short_text(wish.rule)))
    if not 0 < wish.threshold < 1e6:
        raise FieldError("threshold", reasons.of("pair_threshold", value=str(wish.threshold)))
    with_gpus = [node for node in nodes if node.gpus]
    if not 2 <= len(with_gpus) <= MAX_NODES or len(with_gpus) != len(nodes):
        raise FieldError("nodes", reasons.of("pair_nodes", most=MAX_NODES, count=len(with_gpus)))
    windows = [window for window in fleet.maintenance(cluster, now=now) if window.starts_at <= now]
    spared = [
        node.name
        for node in nodes
        if node.labels.get(guards.EXCLUDE_LABEL) == "true"
        or any(window.node == node.name if window.node else window.pool in ("", node.pool) for window in windows)
    ]
    if spared:
        raise FieldError("nodes", reasons.of("pair_nodes_excluded", nodes=reasons.named(spared, most=5)))
    mode, _ = fleet.mode_now(cluster)
    if mode in fleet.MODES_WITHOUT_WRITES:
        raise PlanRefused(reasons.of("pair_mode", cluster=cluster.name, mode=reasons.of(f"mode_{mode}")))
    if not cluster.nccl_image:
        raise PlanRefused(reasons.of("pair_no_image", cluster=cluster.name))


def _advance(plan: PairPlan, *, now: datetime) -> None:
    """Raises port.KubeError."""
    running = _with_nodes(plan, TestState.RUNNING)
    if running:
        pods = pair_jobs.pods_of(plan)
        ended = [test for test in running if _end(plan, test, pods.get(test.place, {}), now=now)]
        pair_jobs.drop(plan, ended)
        over = {test.pk for test in ended}
        running = [test for test in running if test.pk not in over]
        for test in running:
            if len(pods.get(test.place, {})) < 2:  # the worker that began it may have died before it called
                _make(plan, test, now=now)
    pending = _with_nodes(plan, TestState.PENDING)
    if not pending and not running:
        _go_on(plan, now=now)
        return
    first = min(test.round for test in (*pending, *running))
    busy = {node for test in running for node in (test.first_id, test.second_id)}
    for test in pending:
        if len(running) >= MAX_RUNNING_TESTS or test.round > first:
            break
        if busy.isdisjoint((test.first_id, test.second_id)):
            begun = PairTest.objects.filter(pk=test.pk, state=TestState.PENDING, plan__state=State.RUNNING)
            if begun.update(state=TestState.RUNNING, begun_at=now):
                running.append(test)
                busy |= {test.first_id, test.second_id}
                _make(plan, test, now=now)


def _make(plan: PairPlan, test: PairTest, *, now: datetime) -> None:
    """Raises port.KubeError if the cluster did not answer; what it refuses ends the test."""
    try:
        pair_jobs.make(plan, test, now=now)
    except port.Unavailable:
        raise
    except port.KubeError as error:
        _store(test, pair_jobs.Ended(because=reasons.of("pair_call_failed", error=str(error)[:400])), plan, now=now)


def _end(plan: PairPlan, test: PairTest, pods: dict[int, port.Pod], *, now: datetime) -> bool:
    ended = pair_jobs.end_of(test, pods, now=now)
    return ended is not None and _store(test, ended, plan, now=now)


def _store(test: PairTest, ended: pair_jobs.Ended, plan: PairPlan, *, now: datetime) -> bool:
    measured = ended.measured
    state = TestState.ERROR
    if measured is not None and ended.because is None:
        state = TestState.FAILED if measured.best < plan.threshold else TestState.PASSED
    changes = {
        "state": state,
        "busbw": {str(size): figure for size, figure in measured.by_size.items()} if measured else {},
        "best": measured.best if measured else None,
        "device": measured.device if measured else "",
        "because": ended.because.to_json() if ended.because else {},
        "finished_at": now,
    }
    stored = PairTest.objects.filter(pk=test.pk, state=TestState.RUNNING).update(**changes)
    doorbell.publish("preflight", plan.pk, cluster=plan.cluster.name)
    return bool(stored)


def _go_on(plan: PairPlan, *, now: datetime) -> None:
    """After the rounds: the confirmations. After these: the verdict."""
    tests = list(plan.tests.select_related("first", "second"))
    with transaction.atomic():
        rows = PairPlan.objects.select_for_update(no_key=True).filter(pk=plan.pk, state=State.RUNNING)
        if not rows.filter(confirmed=plan.confirmed).exists():
            return
        if not plan.confirmed:
            further = pair_verdicts.confirmations(plan, tests)
            PairTest.objects.bulk_create(further)
            rows.update(confirmed=True)
            plan.confirmed = True
            if further:
                return
        verdict = pair_verdicts.judge(plan, tests)
        rows.update(
            state=State.FINISHED,
            finished_at=now,
            slow=list(verdict.slow),
            fabric=list(verdict.fabric),
            inconclusive=list(verdict.inconclusive),
        )
        act = audit.PairPlanFinished(
            pair_plan=plan.pk,
            rule=plan.rule,
            tests=len(tests),
            errors=sum(test.state == TestState.ERROR for test in tests),
            slow=verdict.slow[:MAX_NAMED_NODES],
            fabric=verdict.fabric[:MAX_NAMED_NODES],
            inconclusive=verdict.inconclusive[:MAX_NAMED_NODES],
        )
        ledger.record(plan.cluster.name, act, actor="system", now=now)
        pair_verdicts.report(plan, tests, verdict, now=now)
        doorbell.publish("preflight", plan.pk, cluster=plan.cluster.name)


def _with_nodes(plan: PairPlan, state: PairTest.State) -> list[PairTest]:
    return list(plan.tests.filter(state=state).select_related("first", "second"))
