"""Pairs of nodes for rounds of pair tests: nobody is in two pairs of a round, and no pair is tested twice.

Nodes meet others of their own domain (a leaf switch) first, so that a slow link between switches does not look like
slow nodes. Domains that are too small for all rounds are joined with the next one.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

Pair = tuple[str, str]


def pair(nodes: Iterable[str], rounds: int, *, domains: Mapping[str, str] | None = None) -> list[list[Pair]]:
    """The pairs of each round; at most ``rounds`` of them. ``domains``: of nodes, by name.

    In a round at most one node has no partner. There are fewer rounds if there are too few nodes for so many partners.
    """
    groups = [_circle(group, rounds) for group in _groups(sorted(set(nodes)), rounds, domains or {})]
    found = []
    for together in zip_longest(*groups, fillvalue=([], ())):
        pairs = [pair for pairs, _ in together for pair in pairs]
        alone = [node for _, left in together for node in left]
        found.append(sorted(pairs + list(zip(alone[::2], alone[1::2], strict=False))))
    return [pairs for pairs in found if pairs]


def _groups(nodes: Sequence[str], rounds: int, domains: Mapping[str, str]) -> list[list[str]]:
    """Groups in which each node has enough partners: whole domains, small ones joined."""
    by_domain: dict[str, list[str]] = {}
    for node in nodes:
        by_domain.setdefault(domains.get(node, ""), []).append(node)
    groups: list[list[str]] = []
    for _, members in sorted(by_domain.items()):
        if groups and (len(groups[-1]) <= rounds or len(members) <= rounds):
            groups[-1] += members
        else:
            groups.append(list(members))
    return groups


def _circle(group: Sequence[str], rounds: int) -> list[tuple[list[Pair], Sequence[str]]]:
    """The round-robin of one group by the circle method: for each round its pairs, and the node without a partner."""
    seats: list[str | None] = [*group, *([None] if len(group) % 2 else [])]
    found: list[tuple[list[Pair], Sequence[str]]] = []
    for _ in range(min(rounds, len(seats) - 1)):
        half = len(seats) // 2
        opposite = list(zip(seats[:half], reversed(seats[half:]), strict=True))
        pairs = [(min(a, b), max(a, b)) for a, b in opposite if a is not None and b is not None]
        alone = [one for ends in opposite if None in ends for one in ends if one is not None]
        found.append((pairs, alone))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return found
