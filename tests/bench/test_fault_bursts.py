"""The rate guard on days of a public trace to which nothing was fitted: few faults are held, bursts are caught."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bench import fault_bursts
from kcover.decisions.guards import chance

OUTAGES = fault_bursts.read([fault_bursts.TRACE])


def test_the_prior_is_that_of_the_days_to_which_it_was_fitted() -> None:
    past = fault_bursts.learned(OUTAGES, day=int(fault_bursts.FIT_UNTIL))
    rate = past.faults / past.node_hours
    assert rate == pytest.approx(chance.FAULTS_PER_NODE_HOUR, rel=0.05)
    company = (past.ten_minutes, past.hour, past.six_hours)
    for window, shared, prior in zip(chance.WINDOWS, company, chance.CLUMPING, strict=True):
        by_chance = rate * fault_bursts.NODES * (window / timedelta(hours=1))
        assert shared / past.faults - by_chance == pytest.approx(prior, abs=0.03)


@pytest.mark.parametrize("since", [0.0, fault_bursts.FIT_UNTIL])
def test_at_most_two_percent_of_hardware_faults_are_held_and_bursts_are_caught(since: float) -> None:
    found = fault_bursts.judge(OUTAGES, since=since)
    assert found.held_alone <= 0.02 * found.hardware
    assert found.hardware == (148 if since == 0 else 66)
    assert found.bursts == found.caught == [14, 9]
    assert found.held <= 2  # of the burst that was hardware, which nine fans ended at once


@pytest.mark.parametrize("size", [8, 14])
def test_a_burst_of_hardware_on_any_day_is_caught(size: int) -> None:
    for day in (110, 160, 199):
        at = fault_bursts.START + timedelta(days=day, hours=3)
        burst = [replace(OUTAGES[0], at=at + timedelta(seconds=n), node=f"m{n}", hardware=True) for n in range(size)]
        outages = sorted([*OUTAGES, *burst], key=lambda outage: outage.at)
        assert size in fault_bursts.judge(outages, since=day - 1).caught
