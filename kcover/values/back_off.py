"""How long to wait after failed calls, before the next attempt."""

from datetime import timedelta
from typing import Final

RETRY_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)  # after the first, the second, … failed call to a cluster
MAX_ASKED: Final = timedelta(minutes=30)


def retry_seconds(failures: int) -> float:
    """The seconds until a call to a cluster is tried again, after this many failures: at least one."""
    return RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1]


def doubled(failures: int, *, least: timedelta, most: timedelta, asked: float = 0.0) -> timedelta:
    """The wait after this many failures: ``least`` after the first, then twice as long each time, up to ``most``.

    ``asked``: the seconds for which the other side asks (Retry-After); at most MAX_ASKED is granted.
    """
    times: int = 2 ** min(failures - 1, 20)
    return max(min(least * times, most), min(timedelta(seconds=asked), MAX_ASKED))
