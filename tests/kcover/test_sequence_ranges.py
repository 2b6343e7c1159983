"""Ranges of log record numbers."""

import pytest
from hypothesis import given, strategies as st

from kcover.values import sequence_ranges

numbers = st.sets(st.integers(0, 60), min_size=1)


def ranges(found: set[int]) -> sequence_ranges.Ranges:
    return sequence_ranges.merge([(number, number) for number in found], max_ranges=100)


def spelled(found: sequence_ranges.Ranges) -> set[int]:
    return {number for first, last in found for number in range(first, last + 1)}


@pytest.mark.parametrize(
    ("given_", "most", "found"),
    [
        ([], 5, ()),
        ([(3, 3), (1, 1)], 5, ((1, 1), (3, 3))),
        ([(1, 4), (5, 6), (2, 3)], 5, ((1, 6),)),
        ([(1, 1), (3, 3), (9, 9), (11, 12)], 2, ((1, 3), (9, 12))),  # the small gaps are filled first
        ([(1, 1), (5, 5), (7, 7)], 1, ((1, 7),)),
    ],
)
def test_adjacent_and_overlapping_ranges_are_merged(
    given_: list[tuple[int, int]], most: int, found: sequence_ranges.Ranges
) -> None:
    assert sequence_ranges.merge(given_, max_ranges=most) == found


@given(numbers)
def test_ranges_contain_exactly_the_numbers(found: set[int]) -> None:
    assert spelled(ranges(found)) == found
    assert sequence_ranges.total(ranges(found)) == len(found)


@given(numbers, st.integers(1, 5))
def test_fewer_ranges_only_fill_gaps(found: set[int], most: int) -> None:
    few = sequence_ranges.merge(ranges(found), max_ranges=most)
    assert len(few) <= most
    assert spelled(few) >= found
    assert (few[0][0], few[-1][1]) == (min(found), max(found))


@given(numbers, numbers)
def test_new_lines_are_exact_if_each_record_is_a_line(one: set[int], reported: set[int]) -> None:
    assert sequence_ranges.count_new(len(one), ranges(one), known=ranges(reported)) == len(one - reported)


@given(st.integers(1, 10**6), numbers, numbers)
def test_new_lines_of_filled_gaps_are_never_too_many(count: int, one: set[int], reported: set[int]) -> None:
    new = sequence_ranges.count_new(count, ranges(one), known=ranges(reported))
    assert 0 <= new <= count
    assert (new == count) >= one.isdisjoint(reported)
    assert (new == 0) >= (one <= reported)
