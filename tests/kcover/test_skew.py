"""The usual version of a fleet's agents."""

import pytest

from kcover import skew


@pytest.mark.parametrize(
    ("versions", "usual"),
    [
        ({}, ""),
        ({"": 5}, ""),
        ({"1.0.0": 3}, "1.0.0"),
        ({"1.0.0": 3, "2.0.0": 2, "": 9}, "1.0.0"),
        ({"1.9.0": 2, "1.10.0": 2}, "1.10.0"),
        ({"1.0.0": 1, "1.0.0-rc1": 1}, "1.0.0-rc1"),
        ({"bench": 1, "1.0": 1}, "1.0"),
        ({"1.0": 0, "0.9": 1}, "0.9"),
    ],
)
def test_the_one_that_most_have_and_of_two_the_newer(versions: dict[str, int], usual: str) -> None:
    assert skew.usual(versions) == usual
