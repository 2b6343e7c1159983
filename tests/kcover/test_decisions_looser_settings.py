"""What counts as loosening a guard."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from kcover.decisions import guards

NO: tuple[str, ...] = ()
STRICT = {
    "breaker": {"limit": 5},
    "budget": {"limit": 5, "scopes": [{"limit": 3, "pools": ["a100"]}]},
    "floor": {"percent": 50},
    "cooldown": 600,
    "ladder": {"reboots": 2},
}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"storm": {"enabled": False}}, ("storm",)),
        ({"storm": {"nodes": 4}}, ("storm",)),
        ({"storm": {"window": 60}}, ("storm",)),
        ({"storm": {"nodes": 2, "window": 600}}, NO),
        ({"rate": {"enabled": False}}, ("rate",)),
        ({"breaker": {"enabled": False}}, ("breaker",)),
        ({"breaker": {"limit": 6}}, ("breaker",)),
        ({"breaker": {"limit": "1%"}}, ("breaker",)),
        ({"breaker": {"limit": 4, "window": 600}}, NO),
        ({"budget": {"limit": None}}, ("budget",)),
        ({"budget": {"by": "pool"}}, ("budget",)),
        ({"budget": {"scopes": []}}, ("budget",)),
        ({"budget": {"scopes": [{"limit": 4, "pools": ["a100"]}]}}, ("budget",)),
        ({"budget": {"scopes": [{"limit": 3, "pools": ["b200"]}]}}, ("budget",)),
        ({"budget": {"scopes": [{"limit": 1, "pools": ["b200"]}, {"limit": 2, "pools": ["a100"]}]}}, NO),
        ({"budget": {"limit": 1}}, NO),
        ({"floor": {"percent": None}}, ("floor",)),
        ({"floor": {"percent": 60}}, NO),
        ({"cooldown": 0}, ("cooldown",)),
        ({"cooldown": 900}, NO),
        ({"hold_down": 0}, ("hold_down",)),
        ({"plans": {"limit": 6}}, ("plans",)),
        ({"repeats": {"limit": 100}}, ("repeats",)),
        ({"repeats": {"window": 60}}, ("repeats",)),
        ({"ladder": {"reboots": None}}, ("ladder",)),
        ({"ladder": {"reboots": 1}}, NO),
        ({"expiry": 172800}, ("expiry",)),
        ({"expiry": 3600}, NO),
        ({"floor": {"percent": 80}, "cooldown": 0}, ("cooldown",)),
    ],
)
def test_changes_that_loosen_a_guard_are_listed(patch: dict[str, Any], expected: tuple[str, ...]) -> None:
    before = guards.parse(STRICT)
    assert guards.loosened(before, guards.merge(before, patch)) == expected
    assert guards.loosened(before, before) == NO


def test_the_smallest_floor_and_a_limit_in_percent() -> None:
    lowest = guards.parse({"floor": {"percent": 1}, "breaker": {"limit": "10%"}})
    assert guards.loosened(lowest, guards.merge(lowest, {"floor": {"percent": None}})) == ("floor",)
    assert guards.loosened(lowest, guards.merge(lowest, {"breaker": {"limit": "9%"}})) == NO
    assert guards.loosened(lowest, guards.merge(lowest, {"breaker": {"limit": "11%"}})) == ("breaker",)


def test_a_guard_that_is_off_is_not_loosened_by_its_numbers() -> None:
    off = guards.parse({"storm": {"enabled": False}, "breaker": {"enabled": False}})
    wide = {"storm": {"nodes": 50, "window": 1}, "breaker": {"limit": 99, "window": 1}, "ladder": {"window": 1}}
    assert guards.loosened(off, guards.merge(off, wide)) == NO
    assert guards.loosened(off, guards.merge(off, {"storm": {"enabled": True}, "budget": {"limit": 9}})) == NO


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 900), st.integers(0, 900))
def test_one_direction_between_two_different_settings_loosens(one: int, other: int, cool: int, hot: int) -> None:
    first = guards.parse({"breaker": {"limit": one}, "cooldown": cool})
    second = guards.parse({"breaker": {"limit": other}, "cooldown": hot})
    both = guards.loosened(first, second) + guards.loosened(second, first)
    assert bool(both) == (first != second)
