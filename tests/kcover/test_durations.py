from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from kcover.values import durations


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("", None),
        ("1min", timedelta(minutes=1)),
        ("20min", timedelta(minutes=20)),
        ("2h", timedelta(hours=2)),
        ("1day", timedelta(days=1)),
        ("1h30min", timedelta(minutes=90)),
        ("1day30min", timedelta(days=1, minutes=30)),
        ("1day2h", timedelta(days=1, hours=2)),
        ("1day2h3min", timedelta(days=1, hours=2, minutes=3)),
        ("0min", timedelta()),
        ("007min", timedelta(minutes=7)),
        ("90min", timedelta(minutes=90)),
        ("36h", timedelta(days=1, hours=12)),
        ("3650day", timedelta(days=3650)),
        ("3649day24h", timedelta(days=3650)),
        ("3649day23h60min", timedelta(days=3650)),
        ("87600h", timedelta(days=3650)),
        ("5256000min", timedelta(days=3650)),
    ],
)
def test_valid_durations(text, wait):
    assert durations.parse(text) == wait


EXAMPLE = 'write it like "1day2h30min" or "20min"'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("20m", '20m: write "20min"'),
        ("1h20m", '20m: write "20min"'),
        ("30s", "30s: seconds are not supported, the smallest unit is min"),
        ("1min2h", '2h: it must come before "min", the order is day, h, min'),
        ("1min2day", '2day: it must come before "min", the order is day, h, min'),
        ("1h2day", '2day: it must come before "h", the order is day, h, min'),
        ("1h1h", '1h: "h" appears twice, write each unit once'),
        ("1day2min3day", '3day: "day" appears twice, write each unit once'),
        ("20", '20: a unit is missing, write "20day", "20h" or "20min"'),
        ("1h20", '20: a unit is missing, write "20day", "20h" or "20min"'),
        ("min", f'min: a number is missing before "min", {EXAMPLE}'),
        ("5weeks", '5weeks: the unit "weeks" is unknown, use "day", "h" or "min"'),
        ("1.5h", '1.: the unit "." is unknown, use "day", "h" or "min"'),
        ("1h-5min", '1h-: the unit "h-" is unknown, use "day", "h" or "min"'),
        ("X5min", f'X: a number is missing before "X", {EXAMPLE}'),
        ("PT5M", f'PT: a number is missing before "PT", {EXAMPLE}'),
        ("-5min", f"-5min: no sign is allowed, a duration is never negative; {EXAMPLE}"),
        ("+5min", f"+5min: no sign is allowed, a duration is never negative; {EXAMPLE}"),
        ("20 min", f'"20 min": no spaces are allowed, {EXAMPLE}'),
        (" 20min", f'" 20min": no spaces are allowed, {EXAMPLE}'),
        ("20min\n", f'"20min\n": no spaces are allowed, {EXAMPLE}'),
        ("20\u3000min", f'"20\u3000min": no spaces are allowed, {EXAMPLE}'),
        (" ", f'" ": no spaces are allowed, {EXAMPLE}'),
        ("２0min", f"２0min: digits must be ASCII (0 to 9), {EXAMPLE}"),
        ("1h２min", f"1h２min: digits must be ASCII (0 to 9), {EXAMPLE}"),
        ("٣min", f"٣min: digits must be ASCII (0 to 9), {EXAMPLE}"),
        ("3651day", '3651day: too long, write "3650day" or less'),
        ("3650day1min", '3650day1min: too long, write "3650day" or less'),
        ("87601h", '87601h: too long, write "3650day" or less'),
        ("99999999day99999999h99999999min", '99999999day99999999h99999999min: too long, write "3650day" or less'),
        ("100000000day", '100000000day: too long, write "3650day" or less'),
        ("9" * 5000 + "min", "9" * 37 + '...: too long, write "3650day" or less'),
        ("20m30s", '20m: write "20min"'),  # from left to right, the first fault is told
        ("5" * 39 + "m", "5" * 39 + 'm: write "' + "5" * 39 + 'min"'),
        ("5" * 41 + "d", "5" * 37 + '...: write "' + "5" * 37 + '...day"'),
    ],
)
def test_an_invalid_duration_names_the_accepted_form(text, complaint):
    with pytest.raises(durations.DurationError) as caught:
        durations.parse(text)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("unit", "written"),
    [
        ("day", ["d", "D", "days", "Day", "Days", "天", "日"]),
        ("h", ["H", "hr", "hrs", "hour", "hours", "Hour", "Hours", "小时"]),
        ("min", ["m", "M", "mins", "minute", "minutes", "Min", "Minutes", "分", "分钟"]),
    ],
)
def test_an_alias_of_a_unit_is_named(unit, written):
    for word in written:
        with pytest.raises(durations.DurationError) as caught:
            durations.parse(f"3{word}")
        assert str(caught.value) == f'3{word}: write "3{unit}"'


@pytest.mark.parametrize("word", ["s", "sec", "secs", "second", "seconds"])
def test_seconds_are_not_supported(word):
    with pytest.raises(durations.DurationError) as caught:
        durations.parse(f"1min30{word}")
    assert str(caught.value) == f"30{word}: seconds are not supported, the smallest unit is min"


@pytest.mark.parametrize(
    ("text", "length", "kce"),
    [
        ("2 hours", timedelta(hours=2), "2h"),
        ("30m", timedelta(minutes=30), "30min"),
        (" 1 h 30 min ", timedelta(minutes=90), "1h30min"),
        ("1 Day, 2 hrs and 5 Minutes", timedelta(days=1, hours=2, minutes=5), "1day2h5min"),
        ("2 小时", timedelta(hours=2), "2h"),
        ("1天2小时30分钟", timedelta(days=1, hours=2, minutes=30), "1day2h30min"),
        ("90min", timedelta(minutes=90), "90min"),
        ("007min", timedelta(minutes=7), "007min"),
        ("", None, ""),
    ],
)
def test_durations_as_people_write_them(text, length, kce):
    assert durations.read(text) == length
    assert durations.kce_text(text) == kce
    assert durations.parse(kce) == length


def test_forms_know_seconds():
    assert durations.read("1 min 30 s", seconds=True) == timedelta(seconds=90)
    assert durations.read("90秒", seconds=True) == timedelta(seconds=90)
    with pytest.raises(durations.DurationError) as caught:
        durations.read("90 s")
    assert caught.value.reason.code == "duration_seconds"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1 2h", "duration_spaces"),
        ("2 parsecs", "duration_unit"),
        ("1.5 h", "duration_unit"),
        ("30 min 1 h", "duration_order"),
        ("1 h 1 hour", "duration_unit_twice"),
        ("- 5 min", "duration_spaces"),
        ("1 hand 5 min", "duration_unit"),
        ("２ h", "duration_spaces"),
        (" ", "duration_spaces"),
        ("1 h" + " " * 200 + "5 min", "duration_spaces"),
        ("4000 days", "duration_long"),
        ("1M", "duration_alias"),  # a month, where it came from
        ("1 M", "duration_spaces"),
    ],
)
def test_what_is_no_duration_for_people_either(text, code):
    with pytest.raises(durations.DurationError) as caught:
        durations.read(text)
    assert caught.value.reason.code == code


@given(st.text(max_size=30) | st.text(alphabet="0123456789dayhmins .-,", max_size=20))
def test_people_can_write_what_kce_can(text):
    try:
        length = durations.parse(text)
    except durations.DurationError:
        return
    assert durations.read(text) == length
    assert durations.kce_text(text) == text


@given(st.integers(0, 3650 * 24 * 60))
def test_a_rendered_duration_parses_to_the_same(minutes):
    wait = timedelta(minutes=minutes)
    assert durations.parse(durations.render(wait)) == wait


@pytest.mark.parametrize(
    ("wait", "text"),
    [
        (None, ""),
        (timedelta(), "0min"),
        (timedelta(minutes=90), "1h30min"),
        (timedelta(days=1), "1day"),
        (timedelta(days=1, minutes=5), "1day5min"),
        (timedelta(hours=23), "23h"),
        (timedelta(days=3650), "3650day"),
    ],
)
def test_the_shortest_text_is_rendered(wait, text):
    assert durations.render(wait) == text


@pytest.mark.parametrize(
    "wait", [timedelta(seconds=30), timedelta(minutes=-1), timedelta(days=3650, minutes=1), timedelta(microseconds=1)]
)
def test_a_duration_without_a_text_is_not_rendered(wait):
    with pytest.raises(durations.DurationError) as caught:
        durations.render(wait)
    assert str(caught.value) == f"{wait}: a duration must be whole minutes, from 0 to 3650 days"


@given(st.text(max_size=30) | st.text(alphabet="0123456789dayhmins .-", max_size=20))
def test_any_text_is_a_duration_or_an_error(text):
    try:
        wait = durations.parse(text)
    except durations.DurationError:
        return
    assert wait is None or timedelta() <= wait <= durations.MAX_DURATION


def test_duration_error_is_a_value_error():
    assert issubclass(durations.DurationError, ValueError)
