"""The length of a probation: it follows the chance of a repeat."""

from datetime import timedelta

import pytest

from kcover import reasons
from kcover.nodes import probation
from kcover.nodes.probation import PRIOR_CHANCES, Return

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def sound(number: int, fault_class: str = "gpu") -> list[Return]:
    return [Return(fault_class, 30 * DAY, False)] * number


def test_the_prior_falls_and_reaches_the_target() -> None:
    chances = list(PRIOR_CHANCES.values())
    assert chances == sorted(chances, reverse=True)
    assert chances[-1] <= probation.TARGET_CHANCE
    found = probation.choose("gpu", [])
    assert (found.length, found.mean, found.repeats, found.returns) == (96 * HOUR, pytest.approx(0.02), 0, 0)


def test_a_fleet_without_repeats_has_short_probations() -> None:
    lengths = [probation.choose("gpu", sound(number)).length for number in (0, 100, 1_000, 10_000)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[1]
    assert lengths[-1] == timedelta(0)


def test_a_class_that_repeats_late_has_a_longer_probation_than_others() -> None:
    late = [Return("cable", 60 * HOUR, True)] * 20
    past = sound(500) + late
    cable, gpu = probation.choose("cable", past), probation.choose("gpu", past)
    assert gpu.length < cable.length == 72 * HOUR
    assert (cable.repeats, cable.returns) == (0, 0)  # every one of them failed before
    assert probation.chances("cable", past)[4].repeats == 20


def test_an_unknown_class_is_like_the_fleet() -> None:
    past = sound(300) + [Return("gpu", 10 * HOUR, True)] * 30
    fleet = probation.chances("fan", past)
    assert [one.returns for one in fleet] == [0] * len(PRIOR_CHANCES)
    assert fleet[0].mean == pytest.approx((100 * PRIOR_CHANCES[timedelta(0)] + 30) / 430)


@pytest.mark.parametrize(("lasted", "repeated", "counted"), [(HOUR, False, 0), (HOUR, True, 1), (25 * HOUR, True, 1)])
def test_a_return_counts_once_its_day_is_over(lasted: timedelta, repeated: bool, counted: int) -> None:
    first = probation.chances("gpu", [Return("gpu", lasted, repeated)])[0]
    assert first.returns == counted
    assert first.repeats == (repeated and lasted < DAY)


def test_a_fleet_that_always_repeats_gets_the_length_with_the_least_chance() -> None:
    past = [Return("gpu", hours * HOUR, True) for hours in range(144)] * 5
    found = probation.choose("gpu", past)
    assert found.mean == min(one.mean for one in probation.chances("gpu", past)) > probation.TARGET_CHANCE


def test_a_rule_sets_the_length_whatever_the_past_says() -> None:
    found = probation.of_rule("1day12h", fault_class="gpu", past=[Return("gpu", HOUR, True)] * 50)
    assert found.length == timedelta(hours=36)
    assert found.because == reasons.of("probation_by_rule", length=reasons.span(timedelta(hours=36)))


def test_the_basis_of_a_chosen_length_counts_the_class_alone() -> None:
    day = timedelta(days=1)
    memory = [Return("memory", 28 * day - HOUR, True), Return("memory", 28 * day, True), Return("memory", HOUR, False)]
    others = [Return("bus", HOUR, True)] * 7
    found = probation.of_rule("auto", fault_class="memory", past=[*memory, *others])
    chance = probation.choose("memory", [*memory, *others])
    assert found.length == chance.length
    basis = dict(found.because.params)
    assert (basis["repeats"], basis["returns"], basis["days"]) == (1, 2, 28)
    assert (basis["fault_class"], basis["length"]) == (reasons.of("fault_class_memory"), reasons.span(chance.length))
    assert basis["permille"] == round(chance.mean * 1000)


def test_a_fleet_that_never_repeats_needs_no_probation() -> None:
    assert probation.of_rule("auto", fault_class="memory", past=sound(100_000)).length == timedelta(0)


def test_a_rule_without_a_length_sets_none() -> None:
    assert probation.of_rule("", fault_class="memory", past=[]).length == timedelta(0)


@pytest.mark.parametrize(("lasted", "repeats", "returns"), [(6, 1, 1), (29, 1, 1), (30, 0, 1), (5, 0, 0)])
def test_the_window_begins_with_the_length_and_ends_a_day_later(lasted: int, repeats: int, returns: int) -> None:
    [found] = [one for one in probation.chances("gpu", [Return("gpu", lasted * HOUR, True)]) if one.length == 6 * HOUR]
    assert (found.repeats, found.returns) == (repeats, returns)
