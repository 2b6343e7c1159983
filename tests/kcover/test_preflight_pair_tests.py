"""The verdict on pair tests: four of five, or two and then two of three confirmations."""

from collections.abc import Collection, Mapping

import pytest

from kcover.preflight import pair_tests, rounds
from kcover.preflight.pair_tests import PairTest

NODES = [f"n{number:02}" for number in range(16)]


def ran(
    failing: Collection[tuple[str, int]] = (),
    nodes: Collection[str] = NODES,
    domains: Mapping[str, str] | None = None,
) -> list[PairTest]:
    """All tests of the rounds. ``failing``: a node and a round, from 0, in which it is slow."""
    return [
        PairTest(pair, any((node, number) in failing for node in pair))
        for number, pairs in enumerate(rounds.pair(nodes, pair_tests.ROUNDS, domains=domains))
        for pair in pairs
    ]


def slow_in(node: str, *numbers: int) -> list[tuple[str, int]]:
    return [(node, number) for number in numbers]


def confirm(tests: list[PairTest], suspect: str, *failed: bool) -> list[PairTest]:
    clean = pair_tests.confirmations(tests)[suspect]
    return [PairTest((suspect, other), bad, suspect) for other, bad in zip(clean, failed, strict=False)]


def test_a_sound_fleet_is_clear() -> None:
    verdict = pair_tests.judge(ran())
    assert (verdict.slow, verdict.inconclusive, verdict.fabric, len(verdict.clear)) == ((), (), (), 16)
    assert pair_tests.confirmations(ran()) == {}


@pytest.mark.parametrize("failed", [(0, 1, 2, 3), (0, 1, 2, 3, 4)])
def test_four_failures_of_five_are_enough(failed: tuple[int, ...]) -> None:
    tests = ran(slow_in("n03", *failed))
    assert pair_tests.judge(tests).slow == ("n03",)
    assert pair_tests.confirmations(tests) == {}
    assert len(pair_tests.judge(tests).clear) == 15


@pytest.mark.parametrize("failed", [(0, 4), (1, 2, 3)])
@pytest.mark.parametrize(
    ("confirmed", "state"),
    [
        ((), "inconclusive"),
        ((True,), "inconclusive"),
        ((True, False), "inconclusive"),
        ((True, True), "slow"),
        ((False, True, True), "slow"),
        ((False, False), "clear"),
        ((True, False, False), "clear"),
    ],
)
def test_two_failures_need_confirmations(failed: tuple[int, ...], confirmed: tuple[bool, ...], state: str) -> None:
    tests = ran(slow_in("n03", *failed))
    assert pair_tests.suspects(tests) == ("n03",)
    verdict = pair_tests.judge([*tests, *confirm(tests, "n03", *confirmed)])
    assert "n03" in getattr(verdict, state)
    assert len(verdict.slow) + len(verdict.inconclusive) + len(verdict.clear) == 16


def test_confirmations_are_with_clean_nodes_that_the_suspect_has_not_met() -> None:
    tests = ran([*slow_in("n03", 0, 1), *slow_in("n07", 2, 3)])
    found = pair_tests.confirmations(tests)
    assert found.keys() == {"n03", "n07"}
    failed = {node for test in tests if test.failed for node in test.pair}
    for suspect, partners in found.items():
        assert len(set(partners)) == pair_tests.CONFIRMATIONS
        assert not failed.intersection(partners)
        met = {node for test in tests if suspect in test.pair for node in test.pair}
        assert not met.intersection(partners)


def test_in_a_small_group_nodes_that_failed_with_the_suspect_confirm_it() -> None:
    tests = ran(slow_in("n00", 0, 1, 2), nodes=NODES[:4])
    assert pair_tests.confirmations(tests) == {"n00": ("n01", "n02", "n03")}
    assert pair_tests.judge([*tests, *confirm(tests, "n00", True, True)]).slow == ("n00",)


def test_the_slow_one_of_two_nodes_cannot_be_determined() -> None:
    tests = ran(slow_in("n00", 0), nodes=NODES[:2])
    assert pair_tests.confirmations(tests) == {"n00": (), "n01": ()}
    assert pair_tests.judge(tests).inconclusive == ("n00", "n01")


def test_a_third_node_separates_two_suspects() -> None:
    tests = ran(slow_in("n00", 0), nodes=NODES[:2])
    assert pair_tests.confirmations(tests, spares=["s1", "s2"]) == {"n00": ("s1", "s2"), "n01": ("s1", "s2")}
    with_spares = [PairTest((node, spare), node == "n00", node) for node in NODES[:2] for spare in ("s1", "s2")]
    verdict = pair_tests.judge([*tests, *with_spares])
    assert (verdict.slow, verdict.clear, verdict.inconclusive) == (("n00",), ("n01",), ())


def test_a_slow_leaf_switch_is_named_instead_of_its_nodes() -> None:
    domains = {node: f"leaf-{number // 8}" for number, node in enumerate(NODES)}
    every = range(pair_tests.ROUNDS)
    leaf = [(node, number) for node in NODES[:8] for number in every]
    verdict = pair_tests.judge(ran([*leaf, *slow_in("n12", *every)], domains=domains), domains=domains)
    assert (verdict.slow, verdict.fabric) == (("n12",), ("leaf-0",))
    assert not set(verdict.clear).intersection(NODES[:8])


def test_two_slow_nodes_of_a_leaf_switch_are_slow_nodes() -> None:
    domains = dict.fromkeys(NODES[:4], "leaf-0") | dict.fromkeys(NODES[4:], "leaf-1")
    tests = ran([(node, number) for node in NODES[:2] for number in range(5)])
    assert pair_tests.judge(tests, domains=domains).slow == ("n00", "n01")
    assert pair_tests.judge(tests, domains=domains).fabric == ()


def test_the_verdict_does_not_depend_on_order() -> None:
    tests = ran([*slow_in("n03", 0, 1), *slow_in("n07", 0, 1, 2, 3, 4)])
    turned = [PairTest((one.pair[1], one.pair[0]), one.failed) for one in reversed(tests)]
    assert pair_tests.judge(turned) == pair_tests.judge(tests)
    assert pair_tests.confirmations(turned) == pair_tests.confirmations(tests)


@pytest.mark.parametrize(("limit", "storm"), [(2, True), (3, True), (16, False), (None, False)])
def test_inv_41_many_suspects_at_once_are_a_storm_and_no_node_is_slow(limit: int | None, storm: bool) -> None:
    failing = [*slow_in("n00", 0, 1, 2, 3, 4), *slow_in("n05", 0, 1, 2, 3), *slow_in("n09", 1, 2)]
    tests = ran(failing)
    verdict = pair_tests.judge(tests, storm_from=limit)
    assert (verdict.storm, verdict.failed) == (storm, True)
    assert verdict.slow == (() if storm else ("n00", "n05"))
    assert {"n00", "n05", "n09"} & set(verdict.inconclusive) == ({"n00", "n05", "n09"} if storm else {"n09"})
    assert not {"n00", "n05", "n09"} & set(verdict.clear)


def test_kcovers_rule_names_nodes_that_failed_every_pair_unless_it_is_a_storm() -> None:
    tests = ran([*slow_in("n03", 0, 1, 2, 3, 4), *slow_in("n07", 0, 1, 2, 3)])
    verdict = pair_tests.every_pair_failed(tests, nodes=[*NODES, "gone"], storm_from=2)
    assert (verdict.slow, verdict.inconclusive, verdict.storm, len(verdict.clear)) == (("n03",), ("gone",), False, 15)
    both = ran([*slow_in("n03", 0, 1, 2, 3, 4), *slow_in("n07", 0, 1, 2, 3, 4)])
    verdict = pair_tests.every_pair_failed(both, storm_from=2)
    assert (verdict.slow, verdict.inconclusive, verdict.storm) == ((), ("n03", "n07"), True)
    pair = pair_tests.every_pair_failed([PairTest(("a", "b"), True)])
    assert (pair.slow, pair.inconclusive) == ((), ("a", "b"))


def test_a_node_without_a_test_is_inconclusive() -> None:
    assert pair_tests.judge(ran(), nodes=[*NODES, "gone"]).inconclusive == ("gone",)
