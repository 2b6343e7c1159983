"""Counting each line of a log once, however many agents read it and however they fold it.

With an incident is kept which log records were counted for it, and for the incidents of the same fault before it: by
boot and source, because each boot numbers its records anew, and drills apart, so that none stands for a real line.
"""

from collections.abc import Sequence
from typing import Any

from kcover import fault, sequences

LOGS = 6  # boots and sources that are remembered
RANGES = 16  # in each; where there are more, small gaps between what was told count as told

Told = Sequence[Sequence[Any]]  # pairs of log and ranges, as JSON has them; the one told of last is the last


def count(told: Told, seen: fault.Fault, *, boot_id: str) -> tuple[int, Told]:
    """How many lines of the fault were not counted before, and what was told with it; without log records all are new.

    A fault that ends later than everything that was told is never taken for known.
    """
    ranges = seen.records or (() if seen.sequence is None else ((seen.sequence, seen.sequence),))
    if not ranges:
        return seen.count, told
    log = f"{boot_id} {seen.source}{' drill' if seen.drill else ''}"
    before: sequences.Ranges = next((tuple((a, b) for a, b in known) for of, known in told if of == log), ())
    after = sequences.joined([*before, *ranges], most=RANGES)
    others = [one for one in told if one[0] != log]
    fresh = sequences.new(seen.count, ranges, told=before)
    if before and ranges[-1][1] > before[-1][1]:
        fresh = max(fresh, 1)
    return fresh, [*others[1 - LOGS :], [log, [list(pair) for pair in after]]]
