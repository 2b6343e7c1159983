"""The log records of a fault: their sequence numbers as ranges, only a few even in a storm.

Two readers of one log batch its lines by their own clocks, so that one reports singly what the other reports as a
count. The record numbers of each fault ensure that a line is counted once.
"""

from collections.abc import Iterable, Sequence

Ranges = tuple[tuple[int, int], ...]  # first and last, both inclusive; ascending, with a gap between any two


def merge(ranges: Iterable[Sequence[int]], *, max_ranges: int) -> Ranges:
    """The same numbers in as few ranges as possible, whatever the order of ``ranges``.

    If more than ``max_ranges`` remain, the smallest gaps between them are filled, as if those records were included.
    """
    joined: list[list[int]] = []
    for first, last in sorted((pair[0], pair[1]) for pair in ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    gaps = sorted(range(1, len(joined)), key=lambda index: joined[index][0] - joined[index - 1][1])
    filled = set(gaps[: max(0, len(joined) - max_ranges)])
    merged: list[tuple[int, int]] = []
    for index, (first, last) in enumerate(joined):
        if index in filled:
            merged[-1] = merged[-1][0], last
        else:
            merged.append((first, last))
    return tuple(merged)


def total(ranges: Ranges) -> int:
    """The count of numbers in the ranges."""
    return sum(last - first + 1 for first, last in ranges)


def count_new(count: int, ranges: Ranges, *, known: Ranges) -> int:
    """The number of the ``count`` lines, which are the records in ``ranges``, that are not in ``known``.

    Exact if each record is one line. If ``ranges`` have filled gaps, the lines are taken as evenly spread and the
    result is rounded down, so that it is never too high.
    """
    records = total(ranges)
    repeated = sum(max(0, min(last, end) - max(first, begin) + 1) for first, last in ranges for begin, end in known)
    return count * (records - repeated) // records
