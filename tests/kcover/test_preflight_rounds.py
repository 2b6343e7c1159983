"""Pairs of rounds: nobody twice in a round, no pair twice, own domain first."""

from collections import Counter

import pytest

from kcover.preflight import rounds


def names(count: int) -> list[str]:
    return [f"n{number:04}" for number in range(count)]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64, 255, 1_000])
def test_every_node_meets_another_in_each_round(size: int) -> None:
    found = rounds.pair(names(size), 5)
    even_size = size + size % 2
    assert len(found) == (min(5, even_size - 1) if size > 1 else 0)
    pairs = [pair for each in found for pair in each]
    assert len(set(pairs)) == len(pairs)
    for each in found:
        places = Counter(node for pair in each for node in pair)
        assert set(places.values()) <= {1}
        assert len(places) >= size - 1
    assert all(first < second for first, second in pairs)


def test_nodes_meet_their_own_domain() -> None:
    domains = {name: f"leaf-{number // 8}" for number, name in enumerate(names(64))}
    found = rounds.pair(names(64), 5, domains=domains)
    assert len(found) == 5
    assert {domains[a] == domains[b] for each in found for a, b in each} == {True}


def test_the_odd_nodes_of_two_domains_meet_each_other() -> None:
    domains = {name: f"leaf-{number // 7}" for number, name in enumerate(names(14))}
    found = rounds.pair(names(14), 5, domains=domains)
    assert [len(each) for each in found] == [7] * 5
    assert [sum(domains[a] != domains[b] for a, b in each) for each in found] == [1] * 5
    assert len({pair for each in found for pair in each}) == 35


def test_small_domains_are_joined() -> None:
    domains = {name: f"rack-{number // 2}" for number, name in enumerate(names(20))}
    found = rounds.pair(names(20), 5, domains=domains)
    assert [len(each) for each in found] == [10] * 5
    assert len({pair for each in found for pair in each}) == 50


def test_the_same_nodes_in_any_order_make_the_same_pairs() -> None:
    assert rounds.pair(reversed(names(9)), 5) == rounds.pair([*names(9), "n0003"], 5)
