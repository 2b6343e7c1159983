"""The most common version of agents."""

import pytest

from kcover.checks import version_skew


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
def test_the_most_common_version_and_the_newer_on_a_tie(versions: dict[str, int], usual: str) -> None:
    assert version_skew.most_common(versions) == usual


@pytest.mark.parametrize(
    ("version", "least", "answer"),
    [
        ("1.0.0", "1.0.0", True),
        ("1.10.0", "1.9.0", True),
        ("1.9.0", "1.10.0", False),
        ("0.9", "1.0.0", False),
        ("", "1.0.0", False),
    ],
)
def test_a_version_is_old_enough(version: str, least: str, answer: bool) -> None:
    assert version_skew.is_at_least(version, least) is answer
