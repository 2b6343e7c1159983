"""Times at the ends of the calendar."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from kcover.values import moments

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.mark.parametrize("at", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_a_bounded_time_is_displayed_in_every_zone(at: datetime) -> None:
    shown = moments.bounded(at)
    assert [
        abs(shown.astimezone(ZoneInfo(zone)) - at) < timedelta(days=2) for zone in ("Pacific/Kiritimati", "Etc/GMT+12")
    ]


def test_a_time_of_today_is_itself() -> None:
    assert (moments.bounded(NOW), moments.bounded_or_none(NOW), moments.bounded_or_none(None)) == (NOW, NOW, None)


@pytest.mark.parametrize(
    ("span", "found"),
    [
        (timedelta(seconds=5), NOW - timedelta(seconds=5)),
        (timedelta(seconds=-5), NOW + timedelta(seconds=5)),
        (timedelta.max, moments.EARLIEST),
        (timedelta.min, moments.LATEST),
        (NOW - moments.EARLIEST + timedelta(seconds=1), moments.EARLIEST),
    ],
)
def test_a_time_before_the_calendar_is_its_beginning(span: timedelta, found: datetime) -> None:
    assert moments.before(NOW, span) == found
