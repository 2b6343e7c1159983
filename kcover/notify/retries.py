"""When a message that its receiver did not take is sent again."""

from datetime import datetime, timedelta

RETRY_DELAYS = tuple(
    timedelta(seconds=seconds) for seconds in (5, 20, 60, 300, 900, 1800)
)  # seven attempts in all, in about an hour; a pager's go on with the last delay until the event is too old


def retry_at(failures: int, *, now: datetime, wait: float = 0) -> datetime | None:
    """The time of the retry after this many failed attempts; None when attempts are used up.

    ``wait``: the seconds that the receiver asks for (Retry-After); at most the longest retry delay is granted.
    """
    if not 1 <= failures <= len(RETRY_DELAYS):
        return None
    requested = min(timedelta(seconds=wait), RETRY_DELAYS[-1])
    return now + max(RETRY_DELAYS[failures - 1], requested)
