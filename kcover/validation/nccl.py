"""NCCL tests of a validation: an all-reduce on each node, then between pairs of nodes.

A node passes alone if its bus bandwidth reaches the limit. A pair that fails has two possible causes, so a node of it
meets further partners: it passes with one success and no failure, or by two of three.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kcover.preflight import rounds
from kcover.preflight.rounds import Pair

NODE: Final = "nccl"
PAIR: Final = "nccl_pair"
NAMES: Final = (NODE, PAIR)
LIMIT: Final = "busbw"  # the argument of both checks, in GB/s
DEFAULT_GBPS: Final[Mapping[str, float]] = MappingProxyType({NODE: 400.0, PAIR: 350.0})
DEFAULT_GPUS: Final = 8  # on a node for which the defaults hold
DEFAULT_MODELS: Final = ("H100", "H200", "B200", "B300")  # with NVSwitch between all GPUs
WITHOUT_NVSWITCH: Final = ("PCIe", "NVL")  # boards of these models that do not reach the defaults

PASSED, FAILED, ERROR = "passed", "failed", "error"
DECIDING = 2  # equal results of a node after the first failure
MAX_TRIES = 6  # tests of a node in pairs, those without a result included


@dataclass(frozen=True, slots=True)
class Meeting:
    """A test of two nodes that has ended. ``state``: PASSED, FAILED or ERROR (nothing was measured)."""

    pair: Pair
    state: str


def limit(check: str, wanted: float | None, *, gpus: int, device: str) -> float | None:
    """The bus bandwidth in GB/s that the check must reach. ``wanted``: of the profile, None: the default.

    None where the profile has no limit and the default does not hold: on other models, and on nodes with other numbers
    of GPUs.
    """
    if wanted is not None:
        return wanted
    words = device.split()
    known = any(model in words for model in DEFAULT_MODELS) and not any(board in words for board in WITHOUT_NVSWITCH)
    return DEFAULT_GBPS[check] if known and gpus == DEFAULT_GPUS else None


def outcome(node: str, meetings: Collection[Meeting]) -> str:
    """What the pair tests of a node prove: PASSED, FAILED, or ERROR while they prove nothing."""
    states = Counter(one.state for one in meetings if node in one.pair)
    if states[FAILED] >= DECIDING:
        return FAILED
    if states[PASSED] >= DECIDING or (states[PASSED] and not states[FAILED]):
        return PASSED
    return ERROR


def next_pairs(
    nodes: Sequence[str],
    meetings: Collection[Meeting],
    *,
    spares: Sequence[str] = (),
    domains: Mapping[str, str] | None = None,
) -> list[Pair]:
    """The pairs to test next, each node in one of them; none if every node is decided, or has no partner left.

    ``spares``: nodes outside the validation that are believed to be sound. ``domains``: leaf switches by node. Nodes of
    the validation meet each other first. A node without a result meets those that passed, then the spares, those of its
    own domain first.
    """
    places = domains or {}
    open_ones = [node for node in sorted(nodes) if outcome(node, meetings) == ERROR]
    first = rounds.pair(nodes, 1, domains=places) if not meetings else []
    found = [pair for pairs in first for pair in pairs]
    taken = {node for pair in found for node in pair}
    sound = [node for node in sorted(nodes) if outcome(node, meetings) == PASSED] + [*spares]
    for node in open_ones:
        met = {other for one in meetings if node in one.pair for other in one.pair}
        tries = sum(node in one.pair for one in meetings)
        partners = [other for other in sound if other not in met and other not in taken]
        if node in taken or tries >= MAX_TRIES or not partners:
            continue
        chosen = min(partners, key=lambda other: places.get(other) != places.get(node))
        taken |= {node, chosen}
        found.append((node, chosen))
    return found
