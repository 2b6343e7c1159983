"""Limits: a count or a percentage, rounded down to at least one node."""

import pytest
from hypothesis import given, strategies as st

from kcover.values import limits

LIMITS = st.builds(limits.Limit, count=st.integers(1, 1_000_000)) | st.builds(limits.Limit, percent=st.integers(1, 100))


@pytest.mark.parametrize(
    ("written", "total", "of"),
    [
        (3, 100, 3),
        (3, 0, 3),
        ("10%", 100, 10),
        ("10%", 109, 10),
        ("10%", 9, 1),
        ("1%", 1, 1),
        ("100%", 7, 7),
        ("10%", 0, 0),
    ],
)
def test_the_limit_for_a_total(written: object, total: int, of: int) -> None:
    assert limits.parse(written).of(total) == of


@given(LIMITS)
def test_a_rendered_value_parses_to_the_same(limit: limits.Limit) -> None:
    assert limits.parse(limits.render(limit)) == limit
    assert str(limit) == str(limits.render(limit))


@given(LIMITS, st.integers(1, 100_000))
def test_a_percentage_is_at_least_one_and_at_most_all(limit: limits.Limit, total: int) -> None:
    assert limit.of(total) >= 1
    if limit.percent is not None:
        assert limit.of(total) <= max(1, total * limit.percent / 100)


@pytest.mark.parametrize(
    "value", [0, -1, 1_000_001, True, None, 1.5, "", "%", "0%", "101%", "1000%", "5 %", "5.5%", "٥%"]
)
def test_invalid_limits(value: object) -> None:
    with pytest.raises(limits.LimitError, match="is not a limit: write a whole number from 1, or a percentage"):
        limits.parse(value)


def test_a_count_in_quotes_has_its_own_message() -> None:
    with pytest.raises(limits.LimitError, match="Write 5 without quotes"):
        limits.parse("5")


@pytest.mark.parametrize("fields", [{}, {"count": 1, "percent": 1}])
def test_a_limit_is_either_a_count_or_a_percentage(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a count or a percentage"):
        limits.Limit(**fields)
