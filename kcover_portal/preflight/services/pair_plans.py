"""Plans of pair tests: rounds of pairs, then confirmations of suspects, then a verdict. Here they begin and end.

Nothing here calls a cluster, because the process that serves pages may not: workers do, see ``pair_runs``.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from kcover import audit, reasons
from kcover.preflight import pair_tests, rounds
from kcover.values.quote import short_text
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import FieldError, Refused
from kcover_portal.preflight import queries
from kcover_portal.preflight.models import PairPlan, PairTest
from kcover_portal.preflight.services import pair_verdicts, testable

MAX_NODES = 512  # of one plan
MAX_ROUNDS = 15
KEY_CHARACTERS = 8
MAX_RUNNING_PLANS = 32  # in one cluster
THRESHOLD_GBPS = 350.0  # GB/s of bus bandwidth between two nodes
MAX_SHOWN_NODES = 5  # in an error message

RULES = (PairPlan.Rule.KCOVER, PairPlan.Rule.CONFIRMED)  # that a person may ask for

State, TestState = PairPlan.State, PairTest.State


class PlanRefused(Refused):
    """The request conflicts with the present state: the plan is over, too many are running, or the mode forbids it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A request for pair tests. ``rule``: one of RULES. ``threshold``: GB/s.

    ``busy_nodes``: nodes with other work are tested too, as far as they have GPUs left. ``scheduled``: nobody asked.
    """

    rounds: int = pair_tests.ROUNDS
    rule: str = PairPlan.Rule.CONFIRMED
    threshold: float = THRESHOLD_GBPS
    busy_nodes: bool = False
    scheduled: bool = False
    reason: str = ""


def begin(cluster: Cluster, nodes: Sequence[Node], wish: Wish, *, actor: str, now: datetime) -> PairPlan:
    """Plans the rounds of these nodes and begins them. Raises FieldError, PlanRefused."""
    _check(cluster, nodes, wish, now=now)
    keys = {node.name: node for node in nodes}
    domains = pair_verdicts.leaves(nodes)
    pairs = rounds.pair(keys, wish.rounds, domains=domains)
    plan = PairPlan(
        rule=wish.rule,
        rounds=wish.rounds,
        threshold=wish.threshold,
        busy_nodes=wish.busy_nodes,
        scheduled=wish.scheduled,
        gpus=min(node.gpus for node in nodes),
        domains=domains,
        reason=wish.reason,
    )
    found = [
        (number, keys[first], keys[second]) for number, each in enumerate(pairs, start=1) for first, second in each
    ]
    return store(plan, cluster, keys, found, actor=actor, now=now)


def store(
    plan: PairPlan,
    cluster: Cluster,
    keys: Mapping[str, Node],
    pairs: Iterable[tuple[int, Node, Node]],
    *,
    actor: str,
    now: datetime,
) -> PairPlan:
    """Stores a new plan with its tests, and begins it. ``keys``: its nodes by name. ``pairs``: each with its round.

    Raises PlanRefused if too many plans are running, or another one has a node.
    """
    with transaction.atomic():
        Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        if PairPlan.objects.filter(cluster=cluster, state=State.RUNNING).count() >= MAX_RUNNING_PLANS:
            raise PlanRefused(reasons.of("pair_plans_full", count=MAX_RUNNING_PLANS, cluster=cluster.name))
        if taken := sorted(queries.nodes_in_plans(cluster) & keys.keys()):
            raise PlanRefused(reasons.of("pair_nodes_in_plan", nodes=reasons.named(taken, most=MAX_SHOWN_NODES)))
        plan.cluster, plan.image, plan.namespace = cluster, cluster.nccl_image, cluster.nccl_namespace
        plan.key, plan.requested_by, plan.requested_at = uuid.uuid4().hex[:KEY_CHARACTERS], actor, now
        plan.save()
        PairTest.objects.bulk_create(
            PairTest(plan=plan, place=place, round=number, first=first, second=second)
            for place, (number, first, second) in enumerate(pairs)
        )
        act = audit.PairPlanRequested(
            pair_plan=plan.pk,
            rule=plan.rule,
            rounds=plan.rounds,
            threshold=plan.threshold,
            image=plan.image,
            nodes=tuple(sorted(keys)[: audit.MAX_NAMED_NODES]),
            count=len(keys),
            reason=plan.reason,
        )
        ledger.record(cluster.name, act, actor=actor, now=now)
        doorbell.ring("preflight.advance_plan", plan.pk)
    return plan


def cancel(plan: PairPlan, *, actor: str, reason: str, now: datetime) -> None:
    """Ends a plan without a verdict; a worker deletes its Jobs. Raises PlanRefused if it has ended."""
    with transaction.atomic():
        rows = PairPlan.objects.filter(pk=plan.pk, state=State.RUNNING)
        if not rows.update(state=State.CANCELLED, finished_at=now, again_at=None):
            raise PlanRefused(reasons.of("pair_plan_ended", plan=str(plan.pk)))
        open_tests = PairTest.objects.filter(plan=plan, state__in=(TestState.PENDING, TestState.RUNNING))
        open_tests.update(state=TestState.CANCELLED, finished_at=now)
        act = audit.PairPlanCancelled(pair_plan=plan.pk, reason=reason)
        ledger.record(plan.cluster.name, act, actor=actor, now=now)
        doorbell.publish("preflight", plan.pk, cluster=plan.cluster.name)
        doorbell.ring("preflight.advance_plan", plan.pk)


def _check(cluster: Cluster, nodes: Sequence[Node], wish: Wish, *, now: datetime) -> None:
    """Raises FieldError, PlanRefused."""
    if not 1 <= wish.rounds <= MAX_ROUNDS:
        raise FieldError("rounds", reasons.of("pair_rounds", most=MAX_ROUNDS, value=wish.rounds))
    if wish.rule not in RULES:
        known = ", ".join(RULES)
        raise FieldError("rule", reasons.of("pair_rule", known=known, value=short_text(wish.rule)))
    if not 0 < wish.threshold < 1e6:
        raise FieldError("threshold", reasons.of("pair_threshold", value=str(wish.threshold)))
    with_gpus = [node for node in nodes if node.gpus]
    if not 2 <= len(with_gpus) <= MAX_NODES or len(with_gpus) != len(nodes):
        raise FieldError("nodes", reasons.of("pair_nodes", most=MAX_NODES, count=len(with_gpus)))
    if spared := [node.name for node in nodes if node.pk in testable.excluded(cluster, nodes, now=now)]:
        raise FieldError("nodes", reasons.of("pair_nodes_excluded", nodes=reasons.named(spared, most=MAX_SHOWN_NODES)))
    mode, _ = fleet.mode_now(cluster)
    if mode in fleet.MODES_WITHOUT_WRITES:
        raise PlanRefused(reasons.of("pair_mode", cluster=cluster.name, mode=reasons.of(f"mode_{mode}")))
    if not cluster.nccl_image:
        raise PlanRefused(reasons.of("pair_no_image", cluster=cluster.name))
