"""Counts each line of a log once, however many agents report it and however they group lines.

An incident stores which log records were counted for it and for earlier incidents of the same fault. Records are stored
by boot and source, because each boot restarts the numbering. Drills are separate, so that none hides a real line.
"""

from collections.abc import Sequence
from typing import Any

from kcover.faults import fault
from kcover.values import sequence_ranges

MAX_LOGS = 6  # boots and sources per incident
MAX_RANGES = 16  # per log; beyond that, small gaps count as counted

Counted = Sequence[Sequence[Any]]  # pairs of log and ranges as in JSON; the latest log is last


def count(counted: Counted, seen: fault.Fault, *, boot_id: str) -> tuple[int, Counted]:
    """The number of new lines of the fault, and the counted records after it. Without log records all lines are new.

    A fault that ends after all counted records has at least one new line.
    """
    ranges = seen.records or (() if seen.sequence is None else ((seen.sequence, seen.sequence),))
    if not ranges:
        return seen.count, counted
    log = f"{boot_id} {seen.source}{' drill' if seen.drill else ''}"
    before: sequence_ranges.Ranges = next((tuple((a, b) for a, b in known) for of, known in counted if of == log), ())
    after = sequence_ranges.merge([*before, *ranges], max_ranges=MAX_RANGES)
    others = [log_ranges for log_ranges in counted if log_ranges[0] != log]
    fresh = sequence_ranges.count_new(seen.count, ranges, known=before)
    if before and ranges[-1][1] > before[-1][1]:
        fresh = max(fresh, 1)
    return fresh, [*others[1 - MAX_LOGS :], [log, [list(pair) for pair in after]]]
