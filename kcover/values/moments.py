"""Times by the clocks of other systems: they may lie anywhere in the calendar, and may have no time before or after."""

from datetime import UTC, datetime, timedelta
from typing import Final

# A day from the ends of the calendar, so that every time can be displayed in every time zone.
EARLIEST: Final = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
LATEST: Final = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)


def bounded(at: datetime) -> datetime:
    """The time itself; of one at the ends of the calendar, the nearest that can be displayed."""
    return min(max(at, EARLIEST), LATEST)


def bounded_or_none(at: datetime | None) -> datetime | None:
    """As ``bounded``; None for None."""
    return bounded(at) if at is not None else None


def before(at: datetime, span: timedelta) -> datetime:
    """The time ``span`` before ``at``, or the end of the calendar that comes first; later than ``at`` if negative."""
    try:
        return bounded(at - span)
    except OverflowError:
        return EARLIEST if span > timedelta() else LATEST
