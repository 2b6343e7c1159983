"""The chance of a fault from the faults so far, and that it is true on a public trace."""

from datetime import UTC, datetime, timedelta

import pytest

from bench import fault_bursts
from kcover.machines import risk
from kcover.machines.risk import History, Learned, Seen

DAY = timedelta(days=1)
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_fleet_without_a_past_has_the_chances_of_the_trace() -> None:
    found = [risk.after(Learned(risk.NODE), faults) for faults in (0, 1, 2, 9)]
    assert [one.probability for one in found] == pytest.approx([0.088, 0.167, 0.254, 0.254])
    assert found[0].base == pytest.approx(0.0975)
    assert found[3].because.to_json() == {
        "code": "risk_of_node",
        "params": {"faults": 9, "days": 28, "permille": 254, "base": 98, "windows": 0},
    }


def test_only_faults_of_the_last_28_days_count() -> None:
    faults = [NOW - 28 * DAY - timedelta(seconds=1), NOW - 28 * DAY, NOW - DAY, NOW]
    assert risk.of_part(Learned(risk.NODE), faults, now=NOW).faults == 2


def test_a_window_counts_once_the_part_was_seen_before_it() -> None:
    faults = [NOW - 40 * DAY, NOW - 39 * DAY, NOW - 20 * DAY]
    young, old = History(NOW - 57 * DAY, faults), History(NOW - 400 * DAY)
    assert dict(risk.learn(risk.NODE, [young], now=NOW).by_faults) == {2: Seen(1, 1)}
    assert dict(risk.learn(risk.GPU, [young], now=NOW).by_faults) == {1: Seen(1, 1)}  # its last class is "1 or more"
    assert dict(risk.learn(risk.NODE, [old], now=NOW).by_faults) == {0: Seen(12, 0)}
    assert not risk.learn(risk.NODE, [History(NOW - 55 * DAY, faults)], now=NOW).by_faults


def test_the_estimate_follows_the_fleet_with_each_window() -> None:
    sound = Learned(risk.NODE, {0: Seen(100_000, 1_000)})
    assert risk.after(sound, 0).probability == pytest.approx(0.01, rel=0.01)
    assert (
        risk.after(sound, 2).probability < 0.03
    )  # its own history is unknown there: the trace's, at this fleet's rate
    lemons = Learned(risk.NODE, {0: Seen(100_000, 1_000), 2: Seen(1_000, 800)})
    assert risk.after(lemons, 3).probability == pytest.approx(0.67, abs=0.01)
    assert risk.after(Learned(risk.NODE, {1: Seen(10_000, 10_000)}), 2).probability == risk.MAX_CHANCE


def test_the_chance_is_true_on_days_to_which_nothing_was_fitted() -> None:
    start, faults = fault_bursts.START, dict[str, list[datetime]]()
    for outage in fault_bursts.read([fault_bursts.TRACE]):
        faults.setdefault(outage.node, []).append(outage.at)
    nodes = [*faults.values(), *([] for _ in range(fault_bursts.NODES - len(faults)))]
    said = {0: 0.0, 1: 0.0, 2: 0.0}
    windows, faulty = dict.fromkeys(said, 0), dict.fromkeys(said, 0)
    for day in range(100, 173, 8):
        now = start + day * DAY
        known = [History(start, [at for at in mine if at < now]) for mine in nodes]
        learned = risk.learn(risk.NODE, known, now=now)
        for history, mine in zip(known, nodes, strict=True):
            found = risk.of_part(learned, history.faults, now=now)
            place = min(found.faults, 2)
            said[place] += found.probability
            windows[place] += 1
            faulty[place] += any(now <= at < now + 28 * DAY for at in mine)
    for place, chance in said.items():
        assert chance / windows[place] == pytest.approx(
            faulty[place] / windows[place], abs=0.05
        )  # two standard errors of a few hundred windows
