"""Counters of received reports, kept in memory and added to the database at each heartbeat.

A killed process loses what it counted since its last heartbeat, at most ten seconds.
"""

import threading
from collections import Counter

from kcover import wire
from kcover_portal.runtime.services import counters

_lock = threading.Lock()
_counts: Counter[str] = Counter()


def taken(answers: list[wire.Answer | Exception]) -> None:
    """Counts stored and failed reports and their items."""
    kept = [answer for answer in answers if isinstance(answer, wire.Answer)]
    with _lock:
        _counts["reports"] += len(kept)
        _counts["failed"] += len(answers) - len(kept)
        _counts["accepted"] += sum(answer.accepted for answer in kept)
        _counts["duplicates"] += sum(answer.duplicates for answer in kept)
        _counts["rejected"] += sum(len(answer.rejected) for answer in kept)


def refused() -> None:
    """Counts a report that was rejected because the queue was full."""
    with _lock:
        _counts["busy"] += 1


def limited() -> None:
    """Counts a report that was rejected because its node sent too many."""
    with _lock:
        _counts["limited"] += 1


def note() -> None:
    """Adds the counts to the database. Keeps them on failure and raises the database's error."""
    with _lock:
        counts = dict(_counts)
        _counts.clear()
    try:
        counters.add("ingest", counts)
    except Exception:
        with _lock:
            _counts.update(counts)
        raise
