"""Times that repeat at the same local time, across changes of the clocks."""

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from kcover.values.recurrence import MAX_SPANS, PERIODS, Recurrence, RecurrenceError, spans

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = timedelta(hours=1)


def local(day: datetime) -> str:
    return f"{day.astimezone(BERLIN):%m-%d %H:%M}"


def repeated(start: datetime, hours: float, every: str, until: datetime, zone: str = "Europe/Berlin"):
    return spans((start, start + hours * HOUR), Recurrence(every, zone, until))


def test_a_weekly_time_stays_the_local_time_in_summer_and_winter() -> None:
    found = repeated(datetime(2026, 10, 18, 20, tzinfo=BERLIN), 3, "week", datetime(2026, 11, 8, 23, tzinfo=BERLIN))
    assert [local(start) for start, _end in found] == ["10-18 20:00", "10-25 20:00", "11-01 20:00", "11-08 20:00"]
    assert {end - start for start, end in found} == {3 * HOUR}
    assert [start.astimezone(UTC).hour for start, _end in found] == [18, 19, 19, 19]


def test_a_local_time_that_occurs_twice_is_covered_twice() -> None:
    found = repeated(datetime(2026, 10, 24, 2, 30, tzinfo=BERLIN), 2, "day", datetime(2026, 10, 26, 12, tzinfo=BERLIN))
    _, (start, end), _ = found
    assert start == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # the first 02:30
    assert end == datetime(2026, 10, 25, 3, 30, tzinfo=UTC)  # 04:30, and two hours after the second 02:30
    assert [(local(a), local(b)) for a, b in (found[0], found[2])] == [
        *[("10-24 02:30", "10-24 04:30"), ("10-26 02:30", "10-26 04:30")]
    ]


def test_a_skipped_local_time_begins_early_and_lasts_as_long() -> None:
    found = repeated(datetime(2026, 3, 28, 2, 30, tzinfo=BERLIN), 2, "day", datetime(2026, 3, 30, 12, tzinfo=BERLIN))
    start, end = found[1]
    assert (local(start), local(end)) == ("03-29 01:30", "03-29 05:30")
    wide = repeated(datetime(2026, 3, 28, 1, tzinfo=BERLIN), 3, "day", datetime(2026, 3, 29, 12, tzinfo=BERLIN))
    assert wide[1][1] - wide[1][0] == 3 * HOUR


@given(
    after=st.integers(0, 730 * 24 * 60),
    minutes=st.integers(1, 23 * 60),
    zone=st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Shanghai", "UTC"]),
    every=st.sampled_from(sorted(PERIODS)),
    number=st.integers(1, 20),
)
def test_spans_cover_their_local_times_and_follow_each_other(after, minutes, zone, every, number) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=after)
    length = timedelta(minutes=minutes)
    found = spans((start, start + length), Recurrence(every, zone, start + number * PERIODS[every] + 2 * HOUR))
    assert found[0] == (start, start + length)
    assert len(found) in (number + 1, number + 2)
    here = start.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    for index, (begins, ends) in enumerate(found):
        assert ends - begins >= length
        for fold in (0, 1) if index else ():
            there = (here + index * PERIODS[every]).replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)
            assert begins <= there
            assert there + length <= ends
    assert all(one[0] < other[0] for one, other in itertools.pairwise(found))


@pytest.mark.parametrize(
    ("every", "zone", "days", "hours", "field", "code"),
    [
        ("month", "Europe/Berlin", 9, 1, "every", "repeat_every_unknown"),
        ("day", "UTC+2", 9, 1, "zone", "repeat_zone_unknown"),
        ("day", "localtime", 9, 1, "zone", "repeat_zone_unknown"),
        ("day", "../etc/passwd", 9, 1, "zone", "repeat_zone_unknown"),
        ("day", "", 9, 1, "zone", "repeat_zone_unknown"),
        ("day", "UTC", 9, 23.5, "every", "repeat_overlaps"),
        ("week", "UTC", 6, 1, "until", "repeat_never"),
        ("day", "UTC", -1, 1, "until", "repeat_never"),
        ("day", "UTC", MAX_SPANS, 1, "until", "repeat_too_many"),
    ],
)
def test_an_unclear_recurrence_is_refused(
    every: str, zone: str, days: int, hours: float, field: str, code: str
) -> None:
    start = datetime(2026, 6, 1, 2, tzinfo=UTC)
    with pytest.raises(RecurrenceError) as refused:
        repeated(start, hours, every, start + timedelta(days=days), zone)
    assert (refused.value.field, refused.value.reason.code) == (field, code)


def test_an_end_without_a_zone_is_refused() -> None:
    with pytest.raises(RecurrenceError) as refused:
        Recurrence("day", "UTC", datetime(2026, 6, 1))  # noqa: DTZ001
    assert refused.value.reason.code == "repeat_until_without_zone"
