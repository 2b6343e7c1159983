"""Quiet hours and digests: when events that are not urgent are sent."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, strategies as st

from kcover.notify import schedule
from kcover.notify.schedule import Schedule, ScheduleInvalid

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = "22:00-07:00"


def sent(moment: str, *, quiet: str = "", digest: str = "", urgent: bool = False, zone: ZoneInfo = BERLIN) -> str:
    """The local time at which an event of this local time is sent."""
    made = Schedule(zone=zone, quiet=schedule.read_quiet(quiet), digest=schedule.read_time(digest))
    due = datetime.fromisoformat(moment).replace(tzinfo=zone)
    return made.send_at(due, urgent=urgent).astimezone(zone).strftime("%a %d %H:%M")


@pytest.mark.parametrize(
    ("moment", "quiet", "digest", "at"),
    [
        ("2026-11-26 21:59", NIGHT, "", "Thu 26 21:59"),
        ("2026-11-26 22:00", NIGHT, "", "Fri 27 07:00"),
        ("2026-11-27 06:59", NIGHT, "", "Fri 27 07:00"),
        ("2026-11-27 07:00", NIGHT, "", "Fri 27 07:00"),
        ("2026-11-27 23:00", f"{NIGHT}; Sat-Sun 00:00-24:00", "", "Mon 30 07:00"),  # the night, the week-end, the night
        ("2026-11-28 12:00", "Sat, Sun 00:00-24:00", "", "Mon 30 00:00"),
        ("2026-11-30 12:00", "Fri-Mon 11:00-13:00", "", "Mon 30 13:00"),
        ("2026-12-01 12:00", "Fri-Mon 11:00-13:00", "", "Tue 01 12:00"),
        ("2026-11-26 12:00", "", "08:30", "Fri 27 08:30"),
        ("2026-11-26 08:30", "", "8:30", "Thu 26 08:30"),
        ("2026-11-26 12:00", NIGHT, "06:00", "Fri 27 07:00"),
        ("2026-10-24 23:00", NIGHT, "", "Sun 25 07:00"),  # the night in which the clock is set back
        ("2026-03-28 12:00", "", "02:30", "Sun 29 03:30"),  # a time that does not exist on that day
    ],
)
def test_events_that_are_not_urgent_wait(moment: str, quiet: str, digest: str, at: str) -> None:
    assert sent(moment, quiet=quiet, digest=digest) == at
    assert sent(moment, quiet=quiet, digest=digest, urgent=True) == sent(moment)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("22-7", "quiet_span_invalid"),
        ("22:00-25:00", "quiet_span_invalid"),
        ("24:00-07:00", "quiet_span_invalid"),
        ("Mo 22:00-07:00", "day_unknown"),
        ("Mon-Sunday 22:00-07:00", "day_unknown"),
        ("00:00-24:00", "quiet_whole_week"),
        ("10:00-10:00", "quiet_whole_week"),
        (";".join(["22:00-07:00"] * 15), "quiet_spans_too_many"),
    ],
)
def test_quiet_hours_that_are_refused(text: str, code: str) -> None:
    with pytest.raises(ScheduleInvalid) as raised:
        schedule.read_quiet(text)
    assert raised.value.reason.code == code


@pytest.mark.parametrize("text", ["24:00", "8", "08:60", "noon"])
def test_a_digest_has_a_time_of_day(text: str) -> None:
    with pytest.raises(ScheduleInvalid):
        schedule.read_time(text)


def covers_the_week(spans) -> bool:
    """Returns whether the spans may leave no free minute in a day. ``read_quiet`` refuses most such spans."""
    return sum(span.minutes for span in spans) >= 24 * 60


MINUTES = st.integers(0, 24 * 60 - 1)
SPANS = st.lists(
    st.builds(schedule.QuietSpan, days=st.frozensets(st.integers(0, 6)), start=MINUTES, end=MINUTES), max_size=4
)


@given(
    spans=SPANS,
    digest=st.none() | MINUTES,
    due=st.integers(0, 2 * 365 * 86_400).map(
        lambda seconds: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    ),
)
def test_a_message_is_never_early_and_never_in_quiet_hours(spans, digest: int | None, due: datetime) -> None:
    assume(not covers_the_week(spans))
    made = Schedule(zone=BERLIN, quiet=spans, digest=digest)
    at = made.send_at(due, urgent=False)
    assert at >= due
    if digest is None:
        assert made.send_at(at, urgent=False) == at  # nothing covers it
    if not spans and digest is not None:
        assert at - due <= timedelta(hours=25)
        local = at.astimezone(BERLIN)
        assert local.hour * 60 + local.minute in (digest, digest + 60)
