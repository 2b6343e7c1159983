"""Times to collect reports: kcover's spelling, ours, and seconds."""

from datetime import timedelta

import pytest

from kcover.preflight import DeadlineInvalid, parse_deadline


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("30m", 30), ("30min", 30), ("1h", 60), ("1h5m30s", 65.5), ("60s", 1), ("1800", 30), (1800, 30), ("24h", 1440)],
)
def test_spellings(text: object, minutes: float) -> None:
    assert parse_deadline(text) == timedelta(minutes=minutes)


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "m", "30", "59s", "25h", "30 m", "-30m", "30x", "٣٠m", "5m1h", "9" * 40, "9999999h"),
        *(None, True, 30.5, 59, 86_401, 10**30, -1, [], {}),
    ],
)
def test_invalid_deadlines_are_refused(value: object) -> None:
    with pytest.raises(DeadlineInvalid):
        parse_deadline(value)
