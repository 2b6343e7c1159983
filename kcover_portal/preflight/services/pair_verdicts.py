"""The verdict on a plan's tests: faults of slow nodes, and the end of earlier faults of clean ones."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from kcover import reasons
from kcover.preflight import pair_tests
from kcover.preflight.pair_tests import PairVerdict
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.preflight.models import PairPlan, PairTest, PreflightReport

SLOW = PreflightReport.Verdict.SLOW
MEASURED = (PairTest.State.PASSED, PairTest.State.FAILED)


def confirmations(plan: PairPlan, tests: Sequence[PairTest]) -> list[PairTest]:
    """The tests, not yet stored, that confirm or clear the suspects of the rounds. kcover's rule has none."""
    if plan.rule == PairPlan.Rule.KCOVER:
        return []
    nodes = _nodes(tests)
    further = pair_tests.confirmations(_results(tests), domains=plan.domains)
    pairs = [(suspect, clean) for suspect, partners in sorted(further.items()) for clean in partners]
    return [
        PairTest(
            plan=plan,
            place=len(tests) + number,
            round=plan.rounds + 1,
            first=nodes[suspect],
            second=nodes[clean],
            confirms=suspect,
        )
        for number, (suspect, clean) in enumerate(pairs)
    ]


def judge(plan: PairPlan, tests: Sequence[PairTest]) -> PairVerdict:
    """The verdict by the plan's rule, on what was measured so far."""
    nodes = _nodes(tests)
    if plan.rule == PairPlan.Rule.KCOVER:
        return pair_tests.every_pair_failed(_results(tests), nodes=nodes)
    return pair_tests.judge(_results(tests), nodes=nodes, domains=plan.domains)


def report(plan: PairPlan, tests: Sequence[PairTest], verdict: PairVerdict, *, now: datetime) -> None:
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
        seen = incidents.PortalFault(kind="preflight", code=SLOW, because=because, source="preflight")
        incidents.keep_fault(nodes[name], seen, boot_id=nodes[name].boot_id, now=now)
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


def _nodes(tests: Sequence[PairTest]) -> dict[str, Node]:
    return {node.name: node for test in tests for node in (test.first, test.second)}
