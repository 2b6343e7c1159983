"""The verdict on rounds of pair tests, with confirmations: recall without false alarms.

kcover's rule (every pair of a node failed) misses a node whose fault shows only sometimes. This rule calls a node slow
if it failed four of five tests, or two and then two of three confirmations against nodes that failed none. The bench
``pair-verdicts`` measures both.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kcover.preflight.rounds import Pair

ROUNDS: Final = 5
SURE_FAILURES: Final = 4  # of the tests of a node
SUSPECT_FAILURES: Final = 2
CONFIRMATIONS: Final = 3  # tests of a suspect against different clean nodes
CONFIRMED_FAILURES: Final = 2
FABRIC_NODES, FABRIC_PERCENT = 3, 50  # slow nodes of a domain from which on the domain is called slow, not they


@dataclass(frozen=True, slots=True)
class PairTest:
    """A test of two nodes and whether it failed. ``confirms``: the suspect that it confirms or clears, "" in rounds."""

    pair: Pair
    failed: bool
    confirms: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairVerdict:
    """Sorted names. ``slow``: to isolate. ``fabric``: domains in which so many are slow that the cause is shared.

    ``inconclusive``: suspects for whom there were not enough clean nodes or tests; also both of a failed pair that had
    no third node. ``clear``: every other tested node. ``storm``: so many are suspect at once that the cause is shared;
    then nobody is slow, and the suspects are inconclusive.
    """

    slow: tuple[str, ...]
    fabric: tuple[str, ...]
    inconclusive: tuple[str, ...]
    clear: tuple[str, ...]
    storm: bool = False

    @property
    def failed(self) -> bool:
        """Whether something was found that speaks against nodes or the network."""
        return bool(self.slow or self.fabric or self.storm)


def confirmations(
    tests: Collection[PairTest], *, spares: Sequence[str] = (), domains: Mapping[str, str] | None = None
) -> dict[str, tuple[str, ...]]:
    """The clean nodes against which each suspect is to be tested: CONFIRMATIONS of them, or fewer if there are no more.

    ``spares``: nodes outside the rounds that are believed to be sound, used after those that passed every test. Nodes
    that the suspect has not met come first, then those of its own domain.
    """
    failures, met = _failures(tests), _met(tests)
    clean = [*_clean(tests, failures, met), *sorted(set(spares) - met.keys())]
    places = domains or {}
    found = {}
    uses: Counter[str] = Counter()  # of each clean node, so that the work is shared
    for suspect in suspects(tests):
        order = sorted(
            (node for node in clean if node != suspect),
            key=lambda node: (
                failures[node],
                node in met[suspect],
                places.get(node) != places.get(suspect),
                uses[node],
            ),
        )
        found[suspect] = tuple(order[:CONFIRMATIONS])
        uses.update(found[suspect])
    return found


def suspects(tests: Iterable[PairTest]) -> tuple[str, ...]:
    """The nodes that failed too often to be clear, and not often enough to be slow for sure."""
    given = list(tests)
    failures, met = _failures(given), _met(given)
    least = SUSPECT_FAILURES if len(met) > 2 else 1  # two nodes alone have one test
    return tuple(sorted(node for node in met if least <= failures[node] < SURE_FAILURES))


def every_pair_failed(
    tests: Collection[PairTest], *, nodes: Iterable[str] = (), storm_from: int | None = None
) -> PairVerdict:
    """The verdict by kcover's rule: slow is who failed every test. Two nodes alone cannot be told apart.

    ``nodes``, ``storm_from``: as in ``judge``.
    """
    failures, met = _failures(tests), _met(tests)
    ran = Counter(node for test in tests for node in test.pair)
    slow = {node for node in met if failures[node] == ran[node]}
    alone = slow if len(met) == 2 else set()
    storm = storm_from is not None and len(slow) >= storm_from
    return PairVerdict(
        slow=() if storm else tuple(sorted(slow - alone)),
        fabric=(),
        inconclusive=tuple(sorted((slow if storm else alone) | set(nodes) - met.keys())),
        clear=tuple(sorted(met.keys() - slow)),
        storm=storm,
    )


def judge(
    tests: Collection[PairTest],
    *,
    nodes: Iterable[str] = (),
    domains: Mapping[str, str] | None = None,
    storm_from: int | None = None,
) -> PairVerdict:
    """The verdict. It depends neither on the order of the tests nor on which node of a pair comes first.

    ``nodes``: everyone who was to be tested; who has no test is inconclusive. ``storm_from``: so many suspect nodes are
    a storm; None: there is no such limit.
    """
    failures, met = _failures(tests), _met(tests)
    confirmed = Counter(test.confirms for test in tests if test.confirms and test.failed)
    cleared = Counter(test.confirms for test in tests if test.confirms and not test.failed)
    slow = {node for node in met if failures[node] >= SURE_FAILURES or confirmed[node] >= CONFIRMED_FAILURES}
    enough = CONFIRMATIONS - CONFIRMED_FAILURES + 1  # passes after which too few failures can follow
    open_ones = {node for node in suspects(tests) if node not in slow and cleared[node] < enough}
    places = domains or {}
    fabric = _fabric(slow, met, places)
    storm = storm_from is not None and len(slow | open_ones) >= storm_from
    own = {node for node in slow if places.get(node) not in fabric}
    return PairVerdict(
        slow=() if storm else tuple(sorted(own)),
        fabric=tuple(sorted(fabric)),
        inconclusive=tuple(sorted(open_ones | (own if storm else set()) | set(nodes) - met.keys())),
        clear=tuple(sorted(met.keys() - slow - open_ones)),
        storm=storm,
    )


def _clean(tests: Iterable[PairTest], failures: Counter[str], met: Mapping[str, set[str]]) -> list[str]:
    """The nodes that failed nothing, and in small groups those that failed once, with a suspect."""
    bad = {node for node in met if failures[node] >= SUSPECT_FAILURES}
    with_bad = {node for test in tests if test.failed and bad.intersection(test.pair) for node in test.pair}
    once = sorted(node for node in with_bad - bad if failures[node] == 1)
    return sorted(node for node in met if not failures[node]) + once


def _fabric(slow: Collection[str], tested: Iterable[str], domains: Mapping[str, str]) -> set[str]:
    sizes = Counter(domains[node] for node in tested if domains.get(node))
    bad = Counter(domains[node] for node in slow if domains.get(node))
    return {
        name for name, count in bad.items() if count >= FABRIC_NODES and count * 100 >= FABRIC_PERCENT * sizes[name]
    }


def _failures(tests: Iterable[PairTest]) -> Counter[str]:
    return Counter(node for test in tests if test.failed and not test.confirms for node in test.pair)


def _met(tests: Iterable[PairTest]) -> dict[str, set[str]]:
    """The nodes of the rounds, each with its partners."""
    found: dict[str, set[str]] = {}
    for test in tests:
        if not test.confirms:
            first, second = test.pair
            found.setdefault(first, set()).add(second)
            found.setdefault(second, set()).add(first)
    return found
