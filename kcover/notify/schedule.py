"""When a channel receives events that are not urgent: after its quiet hours, and once a day as a digest.

Urgent events (``events.URGENT_KINDS``) have no schedule.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from kcover import reasons

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
ALL_DAYS: Final = frozenset(range(7))
SPAN: Final = re.compile(r"(?:(?P<days>[A-Za-z, -]+?)\s+)?(?P<start>\d\d?:\d\d)\s*-\s*(?P<end>\d\d?:\d\d)")
TIME: Final = re.compile(r"(\d\d?):(\d\d)")
DAY_MINUTES: Final = 24 * 60
WEEK_MINUTES: Final = 7 * DAY_MINUTES
MAX_SPANS: Final = 14
EXAMPLE: Final = "Mon-Fri 22:00-07:00"


class ScheduleInvalid(reasons.ExplainedError):
    """The text is no schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietSpan:
    """Minutes of the day from ``start`` up to ``end``, on the days when it starts (0: Monday).

    A span that ends before it starts, or at the same time, ends on the next day.
    """

    days: frozenset[int]
    start: int
    end: int

    @property
    def minutes(self) -> int:
        """The length of the span."""
        return (self.end - self.start - 1) % DAY_MINUTES + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """``quiet``: spans without messages. ``digest``: the minute of the day of the only message; None: no digest.

    All times are local times of ``zone``.
    """

    zone: ZoneInfo
    quiet: Sequence[QuietSpan] = ()
    digest: int | None = None

    def send_at(self, due: datetime, *, urgent: bool) -> datetime:
        """The time to send a message that would be due at ``due``."""
        if urgent:
            return due
        moment = due if self.digest is None else self._next_digest(due)
        return self._after_quiet(moment)

    def _next_digest(self, due: datetime) -> datetime:
        assert self.digest is not None
        today = due.astimezone(self.zone).date()
        days = (today + timedelta(days=day) for day in range(-1, 3))
        return next(moment for day in days if (moment := self._at(day, self.digest)) >= due)

    def _after_quiet(self, moment: datetime) -> datetime:
        """The first time from ``moment`` on that no span covers."""
        for _ in range(8 * MAX_SPANS):
            ends = [end for start, end in self._spans_around(moment) if start <= moment < end]
            if not ends:
                return moment
            moment = max(ends)
        return moment  # only for spans that cover the whole week, which ``read`` refuses

    def _spans_around(self, moment: datetime) -> Iterator[tuple[datetime, datetime]]:
        today = moment.astimezone(self.zone).date()
        for span in self.quiet:
            for day in (today - timedelta(days=1), today):
                if day.weekday() in span.days:
                    yield self._at(day, span.start), self._at(day, span.start + span.minutes)

    def _at(self, day: date, minute: int) -> datetime:
        """The moment of this local time. A time that a clock change skips is an hour later."""
        more, minute = divmod(minute, DAY_MINUTES)
        wall = datetime.combine(day + timedelta(days=more), time(minute // 60, minute % 60), tzinfo=self.zone)
        return wall.astimezone(ZoneInfo("UTC"))


def read_quiet(text: str) -> tuple[QuietSpan, ...]:
    """Reads ``22:00-07:00; Sat-Sun 00:00-24:00``, or "". Raises ScheduleInvalid.

    Spans are separated by semicolons. Days are names of three letters, ranges of them, and lists with commas; without
    days a span is daily. At least one minute of the week must be left.
    """
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if len(parts) > MAX_SPANS:
        raise ScheduleInvalid(reasons.of("quiet_spans_too_many", most=MAX_SPANS))
    spans = tuple(map(_span, parts))
    quiet = {
        (day * DAY_MINUTES + span.start + minute) % WEEK_MINUTES
        for span in spans
        for day in span.days
        for minute in range(span.minutes)
    }
    if len(quiet) == WEEK_MINUTES:
        raise ScheduleInvalid(reasons.of("quiet_whole_week"))
    return spans


def read_time(text: str) -> int | None:
    """Reads ``08:30`` as the minute of the day; None for "". Raises ScheduleInvalid."""
    if not text:
        return None
    minute = _minute(text)
    if minute is None or minute == DAY_MINUTES:
        raise ScheduleInvalid(reasons.of("time_of_day_invalid", text=repr(text)))
    return minute


def _span(text: str) -> QuietSpan:
    found = SPAN.fullmatch(text)
    start, end = (_minute(found[name]) for name in ("start", "end")) if found else (None, None)
    if found is None or start is None or end is None or start == DAY_MINUTES:
        raise ScheduleInvalid(reasons.of("quiet_span_invalid", text=repr(text), example=EXAMPLE))
    return QuietSpan(days=_days(found["days"]), start=start, end=end)


def _days(text: str | None) -> frozenset[int]:
    if text is None:
        return ALL_DAYS
    found: set[int] = set()
    for part in text.split(","):
        first, is_range, last = (name.strip().title() for name in part.partition("-"))
        if first not in DAYS or (is_range and last not in DAYS):
            raise ScheduleInvalid(reasons.of("day_unknown", day=repr(part.strip()), known=", ".join(DAYS)))
        start, end = DAYS.index(first), DAYS.index(last or first)
        found |= {day % 7 for day in range(start, end + (8 if end < start else 1))}
    return frozenset(found)


def _minute(text: str) -> int | None:
    found = TIME.fullmatch(text)
    if found is None:
        return None
    hour, minute = int(found[1]), int(found[2])
    valid = minute < 60 and (hour < 24 or (hour, minute) == (24, 0))
    return hour * 60 + minute if valid else None
