"""The ring of iperf: every pair once in each direction, one sender and one receiver for each node at a time."""

import pytest

from kcover.checks import iperf_ring


def test_a_ring_of_three_nodes() -> None:
    assert iperf_ring.step_count(3) == 2
    assert iperf_ring.pairs("ABC", 1) == [("A", "B"), ("B", "C"), ("C", "A")]
    assert iperf_ring.pairs("ABC", 2) == [("A", "C"), ("B", "A"), ("C", "B")]


@pytest.mark.parametrize("size", [2, 3, 8, 9])
def test_every_pair_is_measured_once_in_each_direction(size: int) -> None:
    reported = []
    for step in range(1, iperf_ring.step_count(size) + 1):
        pairs = iperf_ring.pairs(range(size), step)
        assert sorted(sender for sender, _ in pairs) == sorted(to for _, to in pairs) == list(range(size))
        reported += pairs
    assert sorted(reported) == [(one, other) for one in range(size) for other in range(size) if one != other]


def test_a_single_node_has_no_ring() -> None:
    assert (iperf_ring.step_count(1), iperf_ring.step_count(0)) == (0, 0)
