"""The verdict on a plan's tests: faults of slow nodes, and the end of earlier faults of clean ones."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db import transaction

from kcover import audit, reasons
from kcover.preflight import pair_tests
from kcover.preflight.pair_tests import PairVerdict
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.preflight import queries
from kcover_portal.preflight.models import PairPlan, PairTest, PreflightReport
from kcover_portal.preflight.services import gate_labels, testable
from kcover_portal.rescue.queries import capacity

SLOW = PreflightReport.Verdict.SLOW
MEASURED = (PairTest.State.PASSED, PairTest.State.FAILED)
MAX_SPARES = 2 * pair_tests.CONFIRMATIONS  # nodes outside the plan that a confirmation may use


@transaction.atomic
def go_on(plan: PairPlan, *, now: datetime) -> bool:
    """After the rounds: plans the confirmations. After these: gives the verdict. Returns whether tests were added."""
    rows = PairPlan.objects.select_for_update(no_key=True).filter(pk=plan.pk, state=PairPlan.State.RUNNING)
    if not rows.filter(confirmed=plan.confirmed).exists():
        return False
    tests = list(plan.tests.select_related("first", "second"))
    if not plan.confirmed:
        further = _confirmations(plan, tests, now=now)
        PairTest.objects.bulk_create(further)
        rows.update(confirmed=True)
        if further:
            return True
    verdict = _judge(plan, tests)
    act = audit.PairPlanFinished(
        pair_plan=plan.pk,
        rule=plan.rule,
        tests=len(tests),
        errors=sum(test.state == PairTest.State.ERROR for test in tests),
        slow=verdict.slow[: audit.MAX_NAMED_NODES],
        fabric=verdict.fabric[: audit.MAX_NAMED_NODES],
        inconclusive=verdict.inconclusive[: audit.MAX_NAMED_NODES],
        storm=verdict.storm,
    )
    ledger.record(plan.cluster.name, act, actor="system", now=now)
    _report(plan, tests, verdict, now=now)
    rows.update(
        state=PairPlan.State.FINISHED,
        finished_at=now,
        slow=list(verdict.slow),
        fabric=list(verdict.fabric),
        inconclusive=list(verdict.inconclusive),
        storm=verdict.storm,
    )
    doorbell.publish("preflight", plan.pk, cluster=plan.cluster.name)
    return False


def _confirmations(plan: PairPlan, tests: Sequence[PairTest], *, now: datetime) -> list[PairTest]:
    """The tests, not yet stored, that confirm or clear the suspects of the rounds. kcover's rule has none."""
    results = _results(tests)
    if plan.rule == PairPlan.Rule.KCOVER or not pair_tests.suspects(results):
        return []
    nodes = _nodes(tests)
    spares = {node.name: node for node in spare_nodes(plan, nodes.values(), gpus=plan.gpus, now=now)}
    domains = plan.domains | leaves(spares.values())
    further = pair_tests.confirmations(results, spares=tuple(spares), domains=domains)
    pairs = [(suspect, clean) for suspect, partners in sorted(further.items()) for clean in partners]
    return [
        PairTest(
            plan=plan,
            place=len(tests) + number,
            round=plan.rounds + 1,
            first=nodes[suspect],
            second=(nodes | spares)[clean],
            confirms=suspect,
        )
        for number, (suspect, clean) in enumerate(pairs)
    ]


def spare_nodes(plan: PairPlan, nodes: Iterable[Node], *, gpus: int, now: datetime) -> list[Node]:
    """Nodes outside the plan with so many GPUs that are believed to be sound; those of the pools of ``nodes`` first."""
    taken = queries.nodes_in_plans(plan.cluster)
    sick = Incident.objects.filter(node__cluster=plan.cluster, state=Incident.State.OPEN).values("node")
    rows = capacity.eligible(plan.cluster).filter(gpus__gte=gpus, ready=True, unschedulable=False, probation_until=None)
    found = [node for node in rows.exclude(pk__in=sick).order_by("name") if node.name not in taken]
    obstacles = testable.obstacles(plan.cluster, found, now=now)
    pools = {node.pool for node in nodes}
    found = [node for node in found if node.pk not in obstacles]
    return sorted(found, key=lambda node: (node.pool not in pools, node.name))[:MAX_SPARES]


def _judge(plan: PairPlan, tests: Sequence[PairTest]) -> PairVerdict:
    """The verdict by the plan's rule, on what was measured."""
    results, nodes = _results(tests), _nodes(test for test in tests if not test.confirms)
    limit = _storm_from(plan)
    if plan.rule == PairPlan.Rule.KCOVER:
        return pair_tests.every_pair_failed(results, nodes=nodes, storm_from=limit)
    return pair_tests.judge(results, nodes=nodes, domains=plan.domains, storm_from=limit)


def _gates(plan: PairPlan, verdict: PairVerdict, planned: Counter[str], ran: Counter[str]) -> dict[str, bool]:
    """Returns by name whether each node passes the gate. ``planned``, ``ran``: numbers of tests.

    Nobody asked for the tests of a schedule: a node that found work, or whose partners did, keeps its gate.
    """
    enough = {
        name: ran[name] >= (min(pair_tests.CONFIRMATIONS, count) if plan.scheduled else count)
        for name, count in planned.items()
    }
    kept = [name for name in planned if not plan.scheduled or enough[name] or (ran[name] and name not in verdict.clear)]
    return {name: name in verdict.clear and enough[name] and not verdict.storm for name in kept}


def is_storm(plan: PairPlan, suspects: int) -> bool:
    """Returns whether so many nodes are suspect at once that the cause is shared."""
    limit = _storm_from(plan)
    return limit is not None and suspects >= limit


def _storm_from(plan: PairPlan) -> int | None:
    """The number of suspects from which on they are a storm; None: there is no such limit."""
    storm = fleet.guards_of(plan.cluster).storm
    return storm.reached_from(eligible=capacity.eligible(plan.cluster).count()) if storm.enabled else None


def failed_at(plan: PairPlan, tests: Iterable[PairTest], name: str) -> datetime:
    """When the last test began that the node failed."""
    failed = (test for test in tests if test.state == PairTest.State.FAILED)
    mine = (test.begun_at for test in failed if name in (test.first.name, test.second.name))
    return max((at for at in mine if at is not None), default=plan.requested_at)


def _report(plan: PairPlan, tests: Sequence[PairTest], verdict: PairVerdict, *, now: datetime) -> None:
    """Opens an incident for each slow node. Closes those from before the plan for nodes that passed every test."""
    nodes = _nodes(tests)
    ran: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for test in tests:
        if test.state in MEASURED:
            names = (test.first.name, test.second.name)
            ran.update(names)
            failed.update(names if test.state == PairTest.State.FAILED else ())
    for name in verdict.slow:
        because = reasons.of(
            "pair_slow",
            plan=str(plan.pk),
            node=name,
            failed=failed[name],
            ran=ran[name],
            threshold=f"{plan.threshold:g}",
        )
        seen = incidents.PortalFault(
            kind="preflight", code=SLOW, because=because, earliest=failed_at(plan, tests, name), source="preflight"
        )
        incidents.keep_found(nodes[name], seen, now=now)
    planned = Counter(name for test in tests if not test.confirms for name in (test.first.name, test.second.name))
    gate_labels.keep(plan, _gates(plan, verdict, planned, ran), nodes, now=now)
    clean = [name for name in verdict.clear if not failed[name] and ran[name] >= min(plan.rounds, len(nodes) - 1)]
    rows = Incident.objects.filter(
        node__in=[nodes[name].pk for name in clean], kind="preflight", code=SLOW, state=Incident.State.OPEN
    ).select_related("node")
    for row in rows:
        name = row.node.name if row.node else ""
        because = reasons.of("pair_cleared", plan=str(plan.pk), ran=ran[name], threshold=f"{plan.threshold:g}")
        incidents.close([row.pk], because=because, actor="system", before=plan.requested_at, now=now)


def _results(tests: Sequence[PairTest]) -> list[pair_tests.PairTest]:
    return [
        pair_tests.PairTest((test.first.name, test.second.name), test.state == PairTest.State.FAILED, test.confirms)
        for test in tests
        if test.state in MEASURED
    ]


def _nodes(tests: Iterable[PairTest]) -> dict[str, Node]:
    return {node.name: node for test in tests for node in (test.first, test.second)}


def leaves(nodes: Iterable[Node]) -> dict[str, str]:
    """The leaf switches by the names of the nodes; nodes without a known switch are left out."""
    return {node.name: leaf for node in nodes if (leaf := fleet.topology_of(node)["leaf"])}
