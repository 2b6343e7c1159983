"""The NCCL tests of a validation: a plan that tests each node alone, then against partners. Its limits may differ.

Its nodes may be in a rescue: the validation asked for them. A node that fails opens the fault that pair tests open, and
a node that passes its pair tests ends it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from kcover import audit, reasons
from kcover.validation import nccl
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.preflight.models import PairPlan, PairTest
from kcover_portal.preflight.services import pair_plans, pair_verdicts

State = PairTest.State
ENDED = {State.PASSED: nccl.PASSED, State.FAILED: nccl.FAILED, State.ERROR: nccl.ERROR, State.CANCELLED: nccl.ERROR}
ALONE = 1  # the round of the tests on one node; pairs follow it


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a plan proves about a node. ``tests``: those that have ended. ``limit``: GB/s; None: there was none.

    ``state``: nccl.PASSED, FAILED or ERROR.
    """

    check: str
    state: str
    tests: tuple[PairTest, ...]
    limit: float | None = None


def begin(
    cluster: Cluster,
    nodes: Sequence[Node],
    limits: Mapping[str, float | None],
    *,
    reason: str,
    actor: str,
    now: datetime,
) -> PairPlan:
    """Plans the NCCL tests of these nodes, which have GPUs, and begins them. ``limits``: GB/s by test.

    Raises pair_plans.PlanRefused if too many plans are running, or another one has a node.
    """
    keys = {node.name: node for node in nodes}
    plan = PairPlan(
        rule=PairPlan.Rule.VALIDATION,
        rounds=0,
        threshold=limits.get(nccl.PAIR) or limits.get(nccl.NODE) or nccl.DEFAULT_GBPS[nccl.PAIR],
        limits=dict(limits),
        subjects=sorted(keys),
        gpus=0,
        domains=pair_verdicts.leaves(nodes),
        reason=reason,
    )
    alone = [(ALONE, node, node) for node in nodes if node.gpus > 1] if nccl.NODE in limits else []
    return pair_plans.store(plan, cluster, keys, alone, actor=actor, now=now)


def limit_of(test: PairTest, *, device: str) -> float | None:
    """The bus bandwidth in GB/s that the test must reach; None: it is only measured."""
    if test.plan.rule != PairPlan.Rule.VALIDATION:
        return test.plan.threshold
    check = nccl.NODE if len(test.nodes) == 1 else nccl.PAIR
    return nccl.limit(check, test.plan.limits.get(check), gpus=test.gpus, device=device)


@transaction.atomic
def go_on(plan: PairPlan, *, now: datetime) -> bool:
    """Plans the next pairs, or gives the verdict. Returns whether tests were added."""
    rows = PairPlan.objects.select_for_update(no_key=True).filter(pk=plan.pk, state=PairPlan.State.RUNNING)
    if not rows.exists():
        return False
    tests = list(plan.tests.select_related("plan", "first", "second"))
    nodes = list(Node.objects.filter(cluster=plan.cluster, name__in=plan.subjects))
    further = _next_tests(plan, nodes, tests, now=now) if nccl.PAIR in plan.limits else []
    if further:
        PairTest.objects.bulk_create(further)
        return True
    _finish(plan, nodes, tests, now=now)
    return False


def results(plan: PairPlan) -> dict[str, list[Result]]:
    """What the plan proves, by the name of the node. A test that the node cannot have, or is not to, is left out."""
    tests = list(plan.tests.select_related("plan", "first", "second"))
    return {name: _of_node(plan, name, tests) for name in plan.subjects}


def _next_tests(plan: PairPlan, nodes: Collection[Node], tests: Sequence[PairTest], *, now: datetime) -> list[PairTest]:
    """The next tests of pairs, not yet stored. A node that did not pass alone has none."""
    not_sound = {test.first_id for test in tests if len(test.nodes) == 1 and test.state != State.PASSED}
    sound = {node.name: node for node in nodes if node.pk not in not_sound}
    if not sound:
        return []
    least = min(node.gpus for node in sound.values())
    spares = {node.name: node for node in pair_verdicts.spare_nodes(plan, sound.values(), gpus=least, now=now)}
    domains = plan.domains | pair_verdicts.leaves(spares.values())
    pairs = nccl.next_pairs(tuple(sound), _meetings(tests), spares=tuple(spares), domains=domains)
    keys = sound | spares
    number = max((test.round for test in tests), default=ALONE) + 1
    return [
        PairTest(plan=plan, place=len(tests) + place, round=number, first=keys[first], second=keys[second])
        for place, (first, second) in enumerate(pairs)
    ]


def _finish(plan: PairPlan, nodes: Collection[Node], tests: Sequence[PairTest], *, now: datetime) -> None:
    found = {node.name: {one.state for one in _of_node(plan, node.name, tests)} for node in nodes}
    slow = sorted(name for name, states in found.items() if nccl.FAILED in states)
    unproven = sorted(name for name, states in found.items() if states != {nccl.PASSED} and name not in slow)
    storm = pair_verdicts.is_storm(plan, len(slow))
    act = audit.PairPlanFinished(
        pair_plan=plan.pk,
        rule=plan.rule,
        tests=len(tests),
        errors=sum(test.state == State.ERROR for test in tests),
        slow=tuple(slow[: audit.MAX_NAMED_NODES]),
        inconclusive=tuple(unproven[: audit.MAX_NAMED_NODES]),
        storm=storm,
    )
    ledger.record(plan.cluster.name, act, actor="system", now=now)
    keys = {node.name: node for node in nodes}
    for name in slow if not storm else ():
        because = reasons.of("nccl_slow", plan=str(plan.pk), node=name)
        seen = incidents.PortalFault(
            kind="preflight",
            code=pair_verdicts.SLOW,
            because=because,
            earliest=pair_verdicts.failed_at(plan, tests, name),
            source="preflight",
        )
        incidents.keep_found(keys[name], seen, now=now)
    if nccl.PAIR in plan.limits:
        _close([keys[name] for name, states in found.items() if states == {nccl.PASSED}], plan, now=now)
    PairPlan.objects.filter(pk=plan.pk).update(
        state=PairPlan.State.FINISHED, finished_at=now, slow=slow, inconclusive=unproven, storm=storm, confirmed=True
    )
    doorbell.publish("preflight", plan.pk, cluster=plan.cluster.name)
    doorbell.ring("checks.conclude_nccl", plan.pk)


def _close(passed: Sequence[Node], plan: PairPlan, *, now: datetime) -> None:
    """Closes the faults of pair tests from before the plan."""
    rows = Incident.objects.filter(
        node__in=passed, kind="preflight", code=pair_verdicts.SLOW, state=Incident.State.OPEN
    ).values_list("pk", flat=True)
    because = reasons.of("nccl_cleared", plan=str(plan.pk))
    incidents.close(list(rows), because=because, actor="system", before=plan.requested_at, now=now)


def _of_node(plan: PairPlan, name: str, tests: Sequence[PairTest]) -> list[Result]:
    mine = [test for test in tests if name in {node.name for node in test.nodes}]
    alone = tuple(test for test in mine if len(test.nodes) == 1)
    pairs = tuple(test for test in mine if len(test.nodes) > 1)
    found = []
    for test in alone:
        limit = limit_of(test, device=test.device)
        found.append(Result(check=nccl.NODE, state=ENDED.get(State(test.state), nccl.ERROR), tests=alone, limit=limit))
    if nccl.PAIR in plan.limits and all(one.state == nccl.PASSED for one in found):
        limits = [limit_of(test, device=test.device) for test in pairs if test.device]
        state = nccl.outcome(name, _meetings(pairs))
        limit = min((one for one in limits if one is not None), default=None)
        found.append(Result(check=nccl.PAIR, state=state, tests=pairs, limit=limit))
    return found


def _meetings(tests: Collection[PairTest]) -> list[nccl.Meeting]:
    return [
        nccl.Meeting((test.first.name, test.second.name), ENDED.get(State(test.state), nccl.ERROR))
        for test in tests
        if len(test.nodes) > 1
    ]
