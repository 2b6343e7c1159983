"""Which records of a log a fault stands for: their sequence numbers as ranges, few whatever a storm prints.

Two readers of one log fold its lines by their own clocks, so that one tells singly what the other tells as a count. By
the records that each fault stands for a line is still counted once.
"""

from collections.abc import Iterable, Sequence

Ranges = tuple[tuple[int, int], ...]  # first and last, both in it; ascending, with a number between any two


def joined(ranges: Iterable[Sequence[int]], *, most: int) -> Ranges:
    """As few ranges as say the same, from any in any order.

    Where these are more than ``most`` the smallest gaps between them are filled, as if what lies there were told.
    """
    found: list[list[int]] = []
    for first, last in sorted((pair[0], pair[1]) for pair in ranges):
        if found and first <= found[-1][1] + 1:
            found[-1][1] = max(found[-1][1], last)
        else:
            found.append([first, last])
    gaps = sorted(range(1, len(found)), key=lambda place: found[place][0] - found[place - 1][1])
    filled = set(gaps[: max(0, len(found) - most)])
    kept: list[tuple[int, int]] = []
    for place, (first, last) in enumerate(found):
        if place in filled:
            kept[-1] = kept[-1][0], last
        else:
            kept.append((first, last))
    return tuple(kept)


def size(ranges: Ranges) -> int:
    """How many numbers there are."""
    return sum(last - first + 1 for first, last in ranges)


def new(count: int, ranges: Ranges, *, told: Ranges) -> int:
    """How many of ``count`` lines, which these records are, were not told before.

    Exact where each record is a line. Where ``ranges`` have filled gaps the lines count as spread evenly over them,
    rounded down: never more than there were.
    """
    whole = size(ranges)
    known = sum(max(0, min(last, end) - max(first, begin) + 1) for first, last in ranges for begin, end in told)
    return count * (whole - known) // whole
