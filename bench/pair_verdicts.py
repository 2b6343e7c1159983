"""Verdicts on pair tests: how many slow nodes each rule finds, and how many of those it names are slow.

A seeded simulation, not a measurement of hardware: 5 rounds of pairs, a twentieth of the nodes slow. The speed of a
pair is that of its slower node, with noise. A test fails below 90 % of the expected speed.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from bench.result import Result, scaled
from kcover.preflight import pair_tests, rounds
from kcover.preflight.pair_tests import PairTest

RUNS = 400  # of each scenario
NODES = 64
SIZES = (8, 64, 256)  # for the number of further tests
SLOW_SHARE = 0.05
FAILS_BELOW = 0.9
SEED = 20261124

Rule = Callable[["Fleet", list[PairTest]], set[str]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """``slowness``: least and most, as a share of the speed. ``missed``: the share of tests that miss a slow node.

    ``noise``: the standard deviation of a measured speed.
    """

    slowness: tuple[float, float]
    missed: float
    noise: float


SCENARIOS = {
    "intermittent": Scenario((0.15, 0.5), missed=0.1, noise=0.02),
    "persistent": Scenario((0.15, 0.5), missed=0.0, noise=0.02),
    "noisy": Scenario((0.15, 0.5), missed=0.2, noise=0.056),
    "mild": Scenario((0.1, 0.2), missed=0.1, noise=0.03),
}


class Fleet:
    """Nodes of which some are slow. ``further``: the tests beside the rounds."""

    def __init__(self, size: int, scenario: Scenario, chance: random.Random) -> None:
        names = [f"n{number:03}" for number in range(size)]
        chance.shuffle(names)
        self.nodes, self.scenario, self.chance, self.further = names, scenario, chance, 0
        count = max(1, round(size * SLOW_SHARE))
        self.slow = {node: chance.uniform(*scenario.slowness) for node in names[:count]}

    def rounds(self) -> list[PairTest]:
        """All tests of the rounds, between nodes in a random order."""
        places = {f"{place:03}": node for place, node in enumerate(self.chance.sample(self.nodes, len(self.nodes)))}
        pairs = [pair for each in rounds.pair(places, pair_tests.ROUNDS) for pair in each]
        return [self.test(places[a], places[b]) for a, b in pairs]

    def test(self, first: str, second: str, *, confirms: str = "") -> PairTest:
        """One test."""
        lost = [self.slow.get(node, 0.0) for node in (first, second) if self.chance.random() >= self.scenario.missed]
        speed = (1 - max(lost, default=0.0)) * self.chance.gauss(1, self.scenario.noise)
        self.further += bool(confirms)
        return PairTest((first, second), speed < FAILS_BELOW, confirms)


def at_least(count: int) -> Rule:
    """The rule that names nodes with so many failed tests."""

    def found(_fleet: Fleet, tests: list[PairTest]) -> set[str]:
        failures = Counter(node for test in tests if test.failed for node in test.pair)
        return {node for node, number in failures.items() if number >= count}

    return found


def confirmed(fleet: Fleet, tests: list[PairTest]) -> set[str]:
    """The portal's rule, with its confirmations."""
    further = [
        fleet.test(suspect, clean, confirms=suspect)
        for suspect, partners in pair_tests.confirmations(tests).items()
        for clean in partners
    ]
    return set(pair_tests.judge([*tests, *further]).slow)


RULES: dict[str, Rule] = {
    "failed every pairing (kcover)": at_least(pair_tests.ROUNDS),
    "3 of 5": at_least(3),
    "4 of 5, or 2 and 2 of 3 confirmations (the portal)": confirmed,
}


def score(rule: Rule, scenario: Scenario, *, size: int = NODES, runs: int = RUNS) -> tuple[float, float, float]:
    """Precision, recall, and further tests per run."""
    chance = random.Random(f"{SEED} {size}")
    named = right = slow = further = 0
    for _ in range(runs):
        fleet = Fleet(size, scenario, chance)
        found = rule(fleet, fleet.rounds())
        named, right = named + len(found), right + len(found & fleet.slow.keys())
        slow, further = slow + len(fleet.slow), further + fleet.further
    return right / max(1, named), right / slow, further / runs


def measure(scale: float) -> Result:
    """Every rule in every scenario."""
    runs = scaled(RUNS, scale, least=1)
    rows = []
    for name, rule in RULES.items():
        goal = "recall ≥ .92 at precision ≥ .99" if rule is confirmed else ""
        for scenario, kind in SCENARIOS.items():
            precision, recall, _ = score(rule, kind, runs=runs)
            rows.append((f"{name}, {scenario}: precision / recall", f"{precision:.3f} / {recall:.3f}", goal))
    for size in SIZES:
        *_, further = score(confirmed, SCENARIOS["intermittent"], size=size, runs=runs)
        rows.append((f"further tests of a run of {size} nodes, intermittent", f"{further:.1f}", ""))
    return Result(
        name="Verdicts on pair tests",
        command="make bench ARGS=pair-verdicts",
        conditions=f"A seeded simulation: {NODES} nodes, {SLOW_SHARE:.0%} of them slow, {pair_tests.ROUNDS} rounds of "
        f"pairs, {runs} runs of each. Slow by 15 to 50 % (mild: 10 to 20 %); 10 % of tests miss a slow node "
        "(persistent: none; noisy: 20 %); noise 2 % (noisy: 5.6 %, mild: 3 %). A test fails below 90 %.",
        rows=rows,
    )
