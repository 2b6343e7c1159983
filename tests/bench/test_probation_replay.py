"""Probation on days of a public trace to which nothing was fitted: few repeats, few node hours in probation."""

from datetime import timedelta

import pytest

from bench import probation_replay
from bench.fault_bursts import FIT_UNTIL, TRACE
from kcover.nodes import probation

OUTAGES, UNTIL = probation_replay.read([TRACE])
RETURNED = sorted((one for one in OUTAGES if one.back is not None), key=lambda one: one.back or UNTIL)


def test_the_prior_is_that_of_the_days_to_which_it_was_fitted() -> None:
    past = probation_replay.learned(RETURNED, now=timedelta(days=FIT_UNTIL))
    for length, prior in list(probation.PRIOR_CHANCES.items())[:5]:
        lasted = [one for one in past if one.lasted >= length]
        known = [one for one in lasted if one.repeated or one.lasted >= length + probation.WINDOW]
        repeats = [one for one in known if one.repeated and one.lasted < length + probation.WINDOW]
        assert len(repeats) / len(known) == pytest.approx(prior, abs=0.06)


@pytest.mark.parametrize("since", [0.0, FIT_UNTIL, 150.0])
def test_few_returns_fail_in_normal_work_with_few_hours_of_probation(since: float) -> None:
    found = probation_replay.replay(OUTAGES, since=timedelta(days=since), until=UNTIL)
    assert found.hit <= 0.03 * found.returns
    assert found.probation <= 0.015
    assert found.without > 5 * found.hit
    assert found.caught >= found.without  # what would have hit normal work


def test_a_probation_is_chosen_from_the_past_of_its_time() -> None:
    early = probation_replay.learned(RETURNED, now=timedelta(days=50))
    assert all(one.lasted <= timedelta(days=50) for one in early)
    assert len(early) == sum(one.back is not None and one.back < timedelta(days=50) for one in OUTAGES)
