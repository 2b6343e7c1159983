"""Claimed rows. Rows are the queue: a worker claims a due row by one conditional UPDATE, for the time of a lease.

While the lease lasts, no other worker claims the row. A worker whose lease has ended may only be slow, so each of its
later writes is conditional on what marks its claim: a fencing token, or the name of the holder.
"""

from datetime import datetime, timedelta
from typing import Final

from django.db.models import Q

RETRY_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)  # after the first, the second, … failed call to a cluster
MAX_ASKED: Final = timedelta(minutes=30)


def free(*, now: datetime, lease: str = "lease_until") -> Q:
    """The condition on rows that no worker holds. ``lease``: the column with the end of the lease, null without one."""
    return Q(**{lease: None}) | Q(**{f"{lease}__lte": now})


def retry_seconds(failures: int) -> float:
    """The seconds until a call to a cluster is tried again, after this many failures: at least one."""
    return RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1]


def doubled(failures: int, *, least: timedelta, most: timedelta, asked: float = 0.0) -> timedelta:
    """The wait after this many failures: ``least`` after the first, then twice as long each time, up to ``most``.

    ``asked``: the seconds for which the other side asks (Retry-After); at most MAX_ASKED is granted.
    """
    times: int = 2 ** min(failures - 1, 20)
    return max(min(least * times, most), min(timedelta(seconds=asked), MAX_ASKED))
