"""How many faulty nodes are still chance: the law of clumps, what a fleet's past teaches, and the bound of bursts."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from kcover.decisions.guards import FaultHistory, chance
from tests.proof_verifier import verifier

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
NOTHING = FaultHistory()
CLUMPED = FaultHistory(node_hours=100_000, faults=100, ten_minutes=200, hour=220, six_hours=250)
pasts = st.builds(
    FaultHistory,
    node_hours=st.integers(0, 10**7),
    faults=st.integers(0, 10**4),
    ten_minutes=st.integers(0, 10**4),
    hour=st.integers(0, 10**4),
    six_hours=st.integers(0, 10**4),
)


def limits(nodes: int, past: FaultHistory = NOTHING) -> list[int]:
    return [chance.limit(nodes, window=window, past=past) for window in chance.WINDOWS]


def test_the_windows() -> None:
    assert [window.total_seconds() for window in chance.WINDOWS] == [600, 3600, 21600]


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        (0, [2, 2, 2]),
        (1, [2, 2, 2]),
        (8, [3, 3, 3]),
        (64, [4, 4, 5]),
        (100, [5, 5, 6]),
        (400, [8, 9, 14]),
        (1250, [8, 10, 16]),
        (10_000, [9, 13, 32]),
    ],
)
def test_the_limits_of_a_fleet_without_a_past(nodes: int, found: list[int]) -> None:
    assert limits(nodes) == found


def test_a_quiet_past_lowers_the_limits_and_a_clumped_one_raises_them() -> None:
    quiet = FaultHistory(node_hours=10**7, faults=2000)
    assert limits(400, quiet) == [4, 4, 5]
    assert limits(400, CLUMPED) == [8, 13, 17]


@pytest.mark.parametrize(("nodes", "bound"), [(64, 8), (400, 8), (449, 8), (450, 9), (1000, 20)])
def test_a_burst_is_detected_for_any_past(nodes: int, bound: int) -> None:
    wild = FaultHistory(node_hours=1000, faults=10**4, ten_minutes=5 * 10**4)
    assert limits(nodes, wild)[0] == bound


@pytest.mark.parametrize("past", [NOTHING, CLUMPED], ids=["prior", "clumped"])
@pytest.mark.parametrize("nodes", [8, 64, 400, 1250])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_limit_is_the_smallest_that_holds_one_fault_in_a_thousand(
    nodes: int, place: int, past: FaultHistory
) -> None:
    expected, clumping = chance._law(nodes, place, past)
    ratio = 2 * clumping / (1 + 2 * clumping)
    # As a Poisson number of clumps with logarithmic sizes: Panjer's recursion gives the law of their total.
    law = [math.exp(expected * math.log1p(-ratio) / (2 * clumping))]
    first = expected / (2 * clumping) * ratio
    for count in range(1, 400):
        law.append(law[-1] * (ratio * (count - 1) + first) / count)

    def held(limit: int) -> float:
        return math.fsum((count - limit + 1) * p for count, p in enumerate(law) if count >= limit) / expected

    found = limits(nodes, past)[place]
    bound = min(max(8, nodes // 50), nodes) if place == 0 else nodes
    assert held(found) <= 0.001 or found == bound
    assert found == 2 or held(found - 1) > 0.001


@given(st.integers(0, 20_000), pasts)
def test_the_verifier_computes_the_same_limits(nodes: int, past: FaultHistory) -> None:
    names = list(verifier.WINDOWS)
    facts = {name: getattr(past, name) for name in FaultHistory.__slots__}
    if nodes:
        assert [verifier.not_by_chance(nodes, name, facts) for name in names] == limits(nodes, past)
    assert min(limits(nodes, past)) >= 2


@given(st.integers(1, 100_000), pasts)
def test_every_past_has_a_finite_limit(nodes: int, past: FaultHistory) -> None:
    assert all(2 <= limit <= max(nodes, 2) for limit in limits(nodes, past))


def at(*moments: tuple[float, str]) -> list[tuple[datetime, object]]:
    return [(NOW + timedelta(minutes=minutes), node) for minutes, node in moments]


def test_company_is_the_other_nodes_of_the_window_before() -> None:
    found = chance.observe(
        at((0, "a"), (0, "a"), (9, "b"), (10, "c"), (59, "d"), (360, "e"), (1000, "f")), node_hours=7
    )
    # b: a. c: b only, because a is ten minutes back. d: none in 10 min, a, b and c in 1 h. e: all but a within 6 h.
    assert found == FaultHistory(node_hours=7, faults=7, ten_minutes=2, hour=1 + 2 + 3, six_hours=1 + 2 + 3 + 3)


def test_company_counts_up_to_five() -> None:
    found = chance.observe(at(*((0, str(number)) for number in range(9))), node_hours=1)
    assert (found.ten_minutes, found.faults) == (0 + 1 + 2 + 3 + 4 + 5 * 4, 9)


def test_no_faults_change_no_estimate() -> None:
    assert chance.observe([], node_hours=0) == NOTHING
