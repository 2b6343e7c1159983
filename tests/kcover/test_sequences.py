"""Log records by ranges of their numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcover import sequences

numbers = st.sets(st.integers(0, 60), min_size=1)


def ranges(found: set[int]) -> sequences.Ranges:
    return sequences.joined([(number, number) for number in found], most=100)


def spelled(found: sequences.Ranges) -> set[int]:
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
def test_touching_and_overlapping_ranges_are_one(
    given_: list[tuple[int, int]], most: int, found: sequences.Ranges
) -> None:
    assert sequences.joined(given_, most=most) == found


@given(numbers)
def test_ranges_say_just_the_numbers(found: set[int]) -> None:
    assert spelled(ranges(found)) == found
    assert sequences.size(ranges(found)) == len(found)


@given(numbers, st.integers(1, 5))
def test_fewer_ranges_say_more_numbers_and_none_beyond_the_ends(found: set[int], most: int) -> None:
    few = sequences.joined(ranges(found), most=most)
    assert len(few) <= most
    assert spelled(few) >= found
    assert (few[0][0], few[-1][1]) == (min(found), max(found))


@given(numbers, numbers)
def test_what_was_not_told_is_exact_where_each_record_is_a_line(one: set[int], told: set[int]) -> None:
    assert sequences.new(len(one), ranges(one), told=ranges(told)) == len(one - told)


@given(st.integers(1, 10**6), numbers, numbers)
def test_lines_behind_filled_gaps_are_never_more_than_there_were(count: int, one: set[int], told: set[int]) -> None:
    new = sequences.new(count, ranges(one), told=ranges(told))
    assert 0 <= new <= count
    assert (new == count) >= one.isdisjoint(told)
    assert (new == 0) >= (one <= told)
