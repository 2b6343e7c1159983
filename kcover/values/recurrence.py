"""Times that repeat at the same local time, for example a maintenance window each Sunday at 02:00 in Berlin.

Pure: no I/O, no clock. Local times may be skipped or come twice when clocks change. A span then errs on the long side:
it covers every reading of its local times, and never lasts less than the first one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo, available_timezones

from kcover import reasons

PERIODS: Final[Mapping[str, timedelta]] = {"day": timedelta(days=1), "week": timedelta(weeks=1)}
MAX_SPANS: Final = 60
Span = tuple[datetime, datetime]  # from the first until before the second


class RecurrenceError(reasons.ExplainedError):
    """A recurrence that cannot be read. ``field``: its key."""

    def __init__(self, field: str, reason: reasons.Reason) -> None:
        super().__init__(reason)
        self.field = field


@dataclass(frozen=True, slots=True)
class Recurrence:
    """``every``: a key of ``PERIODS``. ``zone``: an IANA name. ``until``: the last time at which a span may start."""

    every: str
    zone: str
    until: datetime

    def __post_init__(self) -> None:
        """Raises RecurrenceError."""
        if self.every not in PERIODS:
            raise RecurrenceError("every", reasons.of("repeat_every_unknown", known=", ".join(PERIODS)))
        if self.zone not in available_timezones() or ("/" not in self.zone and self.zone != "UTC"):
            raise RecurrenceError("zone", reasons.of("repeat_zone_unknown", zone=self.zone[:100]))
        if self.until.tzinfo is None:
            raise RecurrenceError("until", reasons.of("repeat_until_without_zone"))

    def to_json(self) -> dict[str, Any]:
        """Returns what the database and REST hold."""
        return {"every": self.every, "zone": self.zone, "until": self.until.astimezone(UTC).isoformat()}


def spans(first: Span, recurrence: Recurrence) -> list[Span]:
    """The first span as it is, and its repetitions. Raises RecurrenceError if there are none, too many, or overlaps."""
    start, end = first
    zone, period = ZoneInfo(recurrence.zone), PERIODS[recurrence.every]
    # An hour less than the period, since the day on which clocks go forward has 23 hours.
    if end - start > period - timedelta(hours=1):
        raise RecurrenceError("every", reasons.of("repeat_overlaps"))
    found = [first]
    local_start, local_end = (at.astimezone(zone).replace(tzinfo=None) for at in first)
    while True:
        shift = len(found) * period
        next_start = min(_readings(local_start + shift, zone))
        if next_start > recurrence.until:
            break
        if len(found) == MAX_SPANS:
            raise RecurrenceError("until", reasons.of("repeat_too_many", most=MAX_SPANS))
        latest = max(_readings(local_start + shift, zone)) + (end - start)
        found.append((next_start, max(*_readings(local_end + shift, zone), latest)))
    if len(found) == 1:
        raise RecurrenceError("until", reasons.of("repeat_never"))
    return found


def _readings(local: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """What a local time may mean in UTC: the same twice, unless clocks change there."""
    before, after = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return before, after
