"""How many faulty nodes are still chance: the simulated table, and the law between its rows."""

import math
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcover.decisions.guards import chance

# distinct nodes with independent faults that are improbable (p < 1e-4) within 10 min, 1 h, 6 h
SIMULATED = {64: (2, 2, 3), 128: (2, 3, 4), 512: (2, 3, 6), 1250: (3, 4, 8)}


def limits(nodes: int) -> tuple[int, ...]:
    return tuple(chance.improbable(nodes, window=window) for window in chance.WINDOWS)


def test_the_windows() -> None:
    assert [window.total_seconds() for window in chance.WINDOWS] == [600, 3600, 21600]


@pytest.mark.parametrize(("nodes", "found"), SIMULATED.items())
def test_the_law_gives_what_the_simulation_found(nodes: int, found: tuple[int, ...]) -> None:
    assert limits(nodes) == found


@pytest.mark.parametrize("rate", [1.45e-4, 1.66e-4])
def test_the_rate_is_well_within_those_that_give_the_table(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "FAULTS_PER_NODE_HOUR", rate)
    assert {nodes: limits(nodes) for nodes in SIMULATED} == SIMULATED


@pytest.mark.parametrize("rate", [1.44e-4, 1.67e-4])
def test_rates_beyond_them_do_not(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "FAULTS_PER_NODE_HOUR", rate)
    assert {nodes: limits(nodes) for nodes in SIMULATED} != SIMULATED


@pytest.mark.parametrize("nodes", [0, 1, 2, 8, 32])
def test_one_fault_is_always_chance(nodes: int) -> None:
    assert limits(nodes)[0] == 2
    assert min(limits(nodes)) == 2


@pytest.mark.parametrize(("nodes", "found"), [(32, (2, 2, 3)), (8, (2, 2, 2)), (1000, (3, 4, 7)), (10000, (5, 9, 24))])
def test_sizes_that_were_not_simulated(nodes: int, found: tuple[int, ...]) -> None:
    assert limits(nodes) == found


@given(st.integers(1, 20_000), st.sampled_from(chance.WINDOWS))
def test_reached_is_improbable_and_one_less_is_not(nodes: int, window: timedelta) -> None:
    expected = chance.FAULTS_PER_NODE_HOUR * nodes * window.total_seconds() / 3600
    limit = chance.improbable(nodes, window=window)

    def at_least(count: int) -> float:
        return 1 - math.fsum(
            math.exp(-expected) * float(Fraction(expected) ** k / math.factorial(k)) for k in range(count)
        )

    assert at_least(limit) < 1e-4
    assert limit == 2 or at_least(limit - 1) >= 1e-4


@given(st.integers(0, 5000), st.integers(0, 500), st.sampled_from(chance.WINDOWS))
def test_more_nodes_or_more_time_never_lower_the_limit(nodes: int, more: int, window: timedelta) -> None:
    assert chance.improbable(nodes + more, window=window) >= chance.improbable(nodes, window=window)
    assert chance.improbable(nodes, window=2 * window) >= chance.improbable(nodes, window=window)
