"""Sizes and growth of measurements."""

import math

import pytest

from bench import result


@pytest.mark.parametrize(
    ("full", "least", "scale", "wanted"),
    [(600, 20, 1, 600), (601, 20, 0.5, 300), (600, 20, 0.001, 20), (60.0, 1.0, 0.05, 3.0), (60.0, 1.0, 0.001, 1.0)],
)
def test_counts_and_durations_shrink_to_their_least(full, least, scale, wanted):
    found = result.scaled(full, scale, least=least)
    assert found == wanted
    assert type(found) is type(full)


@pytest.mark.parametrize(
    ("scale", "wanted"), [(1, [100, 333, 1000]), (0.02, [10, 20]), (0.001, [10])], ids=["full", "small", "smallest"]
)
def test_sizes_that_are_equal_are_measured_once(scale, wanted):
    assert result.sizes(1000, scale, least=10) == wanted


def test_the_exponent_is_the_growth_of_cost_with_size():
    assert result.exponent([(10, 5), (100, 500)]) == pytest.approx(2)
    assert result.exponent([(10, 5), (20, 10), (40, 20)]) == pytest.approx(1)
    assert math.isnan(result.exponent([(10, 5)]))
