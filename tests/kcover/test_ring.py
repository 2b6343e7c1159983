"""iperf's ring: every pair once in each direction, nobody with two partners of a kind at a time."""

import pytest

from kcover import ring


def test_three_nodes_as_autopilot_draws_them() -> None:
    assert ring.steps(3) == 2
    assert ring.pairs("ABC", 1) == [("A", "B"), ("B", "C"), ("C", "A")]
    assert ring.pairs("ABC", 2) == [("A", "C"), ("B", "A"), ("C", "B")]


@pytest.mark.parametrize("size", [2, 3, 8, 9])
def test_every_pair_is_measured_once_in_each_direction(size: int) -> None:
    told = []
    for step in range(1, ring.steps(size) + 1):
        pairs = ring.pairs(range(size), step)
        assert sorted(sender for sender, _ in pairs) == sorted(to for _, to in pairs) == list(range(size))
        told += pairs
    assert sorted(told) == [(one, other) for one in range(size) for other in range(size) if one != other]


def test_who_is_alone_has_no_ring() -> None:
    assert (ring.steps(1), ring.steps(0)) == (0, 0)
