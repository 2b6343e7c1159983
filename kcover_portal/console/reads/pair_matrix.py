"""A plan of pair tests as a matrix: one row per node, one column per round, and the confirmations."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kcover_portal.preflight.models import PairPlan, PairTest

VERDICTS = ("slow", "fabric", "inconclusive")  # the flagged ones, worst first


@dataclass(frozen=True, slots=True)
class Cell:
    """A test of a node: the other node, "" if it was tested alone, and the result."""

    peer: str
    test: PairTest


@dataclass(slots=True)
class Row:
    """One node. A cell of ``rounds`` is None if the node had no partner in that round.

    ``verdict``: one of VERDICTS or clear once the plan is finished, else "".
    """

    node: str
    verdict: str
    rounds: list[Cell | None]
    confirmations: list[Cell] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Matrix:
    """All nodes, the flagged ones first. ``done`` of ``total`` tests have ended. ``rounds``: their numbers."""

    rounds: Sequence[int]
    rows: Sequence[Row]
    done: int
    total: int


def of(plan: PairPlan) -> Matrix:
    """The matrix of a plan. A test counts for both nodes of its pair; a confirmation is shown at its suspect."""
    tests = list(plan.tests.select_related("first", "second"))
    count = max((test.round for test in tests if not test.confirms), default=0)
    rows: dict[str, Row] = {}
    for test in tests:
        names = [node.name for node in test.nodes]
        for node, peer in zip(names, reversed(names) if len(names) > 1 else ("",), strict=True):
            if test.confirms in ("", node):
                row = rows.setdefault(node, Row(node, _verdict(plan, node), [None] * count))
                if test.confirms:
                    row.confirmations.append(Cell(peer, test))
                else:
                    row.rounds[test.round - 1] = Cell(peer, test)
    order = {verdict: place for place, verdict in enumerate(VERDICTS)}
    shown = sorted(rows.values(), key=lambda row: (order.get(row.verdict, len(order)), row.node))
    done = sum(test.finished_at is not None for test in tests)
    return Matrix(range(1, count + 1), shown, done, len(tests))


def _verdict(plan: PairPlan, node: str) -> str:
    if plan.state != PairPlan.State.FINISHED:
        return ""
    if node in plan.slow:
        return "slow"
    if plan.domains.get(node) in plan.fabric:
        return "fabric"
    return "inconclusive" if node in plan.inconclusive else "clear"
