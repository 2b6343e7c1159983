"""After how long without a report an agent is late, and after how long it is silent."""

from datetime import datetime, timedelta

HEARTBEAT = timedelta(seconds=30)
LATE_AFTER_INTERVALS = 2  # without a report
SILENT_AFTER_INTERVALS = 4


def of(seen_at: datetime | None, *, now: datetime, interval: timedelta = HEARTBEAT) -> str:
    """``fresh``, ``late``, ``silent``, or ``never``, by the number of missed intervals.

    ``seen_at``: when the portal received the last report, by its own clock.
    """
    if seen_at is None:
        return "never"
    missed = (now - seen_at) / interval
    return "silent" if missed > SILENT_AFTER_INTERVALS else "late" if missed > LATE_AFTER_INTERVALS else "fresh"
