"""How long a failure makes the next attempt wait."""

from datetime import timedelta

import pytest

from kcover.values import back_off

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 2), (2, 4), (3, 8), (7, 60), (10_000, 60)])
def test_the_wait_doubles_up_to_a_limit(failures: int, seconds: int) -> None:
    assert back_off.doubled(failures, least=2 * SECOND, most=60 * SECOND) == seconds * SECOND


@pytest.mark.parametrize(("asked", "seconds"), [(1.0, 4), (90.0, 90), (1e6, 1800)])
def test_the_other_side_may_ask_for_a_longer_wait(asked: float, seconds: int) -> None:
    assert back_off.doubled(2, least=2 * SECOND, most=60 * SECOND, asked=asked) == seconds * SECOND


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1.0), (6, 60.0), (7, 60.0)])
def test_calls_are_tried_again_later_and_later(failures: int, seconds: float) -> None:
    assert back_off.retry_seconds(failures) == seconds
