"""The number of faulty nodes that chance explains, given that real faults clump.

Faults of a real fleet share causes: a switch, a power supply, a bad batch. So the number of newly faulty nodes in a
window follows a negative binomial law: clumps arrive independently, and the size of a clump is logarithmic. Its mean
comes from the fault rate. Its over-dispersion comes from the number of other nodes that fail within one window before
each fault. Both are learned from the fleet's own past. A public trace of 400 GPU servers is the prior, see
docs/architecture/guards.md.

The limit of a window is the smallest number of nodes for which the law holds back at most ``HELD_SHARE`` of all faults.
"""

import functools
import math
from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta

from kcover.decisions.guards.facts import FaultHistory

WINDOWS = (timedelta(minutes=10), timedelta(hours=1), timedelta(hours=6))
HELD_SHARE = 0.001  # of all faults, in each window

# The prior, fitted to days 0 to 100 of the trace. It counts like so many faults of the fleet.
PRIOR_FAULTS = 300
FAULTS_PER_NODE_HOUR = 1.8e-4
CLUMPING = (0.4, 0.5, 0.9)  # the company that independent faults would not have, by window, in a fleet of
PRIOR_NODES = 400  # nodes; a part of a fleet sees the same part of each clump

MAX_COMPANY = 5  # counted per fault, so that one burst does not teach the guard to let bursts pass
BURST_NODES, BURST_PERCENT = 8, 2  # so many nodes, or this share of the fleet, within 10 min are a burst in any case
MIN_CLUMPING = 0.01


def limit(nodes: int, *, window: timedelta, past: FaultHistory) -> int:
    """The smallest number of faulty nodes, at least two, that chance does not explain.

    Reaching it within ``window`` (one of ``WINDOWS``) among ``nodes`` nodes means that a shared cause is likely.
    """
    return _limit(nodes, WINDOWS.index(window), past)


def observe(faults: Iterable[tuple[datetime, object]], *, node_hours: int) -> FaultHistory:
    """The past of a fleet. ``faults``: when a node became faulty, and the node, in order of time."""
    recent: deque[tuple[datetime, object]] = deque()
    company, number = [0] * len(WINDOWS), 0
    for at, node in faults:
        while recent and at - recent[0][0] >= WINDOWS[-1]:
            recent.popleft()
        for place, window in enumerate(WINDOWS):
            others = {other for seen, other in recent if at - seen < window and other != node}
            company[place] += min(len(others), MAX_COMPANY)
        recent.append((at, node))
        number += 1
    ten_minutes, hour, six_hours = company
    return FaultHistory(node_hours=node_hours, faults=number, ten_minutes=ten_minutes, hour=hour, six_hours=six_hours)


@functools.lru_cache(maxsize=256)
def _limit(nodes: int, place: int, past: FaultHistory) -> int:
    if nodes < 1:
        return 2
    expected, clumping = _law(nodes, place, past)
    ratio = 2 * clumping / (1 + 2 * clumping)  # of the logarithmic sizes; the variance is 1 + 2 * clumping means
    size = expected / (2 * clumping)
    most = min(max(BURST_NODES, nodes * BURST_PERCENT // 100), nodes) if place == 0 else nodes
    # ``above``: the mean number of faults in a window beyond the first ``count``; these would be held back.
    at_most = _chance(0, size, ratio)
    above, count = expected - (1 - at_most), 1
    while above > HELD_SHARE * expected and count + 1 < most:
        at_most += _chance(count, size, ratio)
        above -= 1 - at_most
        count += 1
    return count + 1


def _law(nodes: int, place: int, past: FaultHistory) -> tuple[float, float]:
    """The mean number of faults in a window, and their clumping."""
    faults = PRIOR_FAULTS + past.faults
    rate = faults / (PRIOR_FAULTS / FAULTS_PER_NODE_HOUR + past.node_hours)
    expected = rate * nodes * (WINDOWS[place] / timedelta(hours=1))
    observed = (past.ten_minutes, past.hour, past.six_hours)[place] - past.faults * expected
    prior = PRIOR_FAULTS * CLUMPING[place] * min(nodes / PRIOR_NODES, 1)
    return expected, max((prior + observed) / faults, MIN_CLUMPING)


def _chance(count: int, size: float, ratio: float) -> float:
    """The probability of exactly ``count`` faults."""
    ways = math.lgamma(count + size) - math.lgamma(size) - math.lgamma(count + 1)
    return math.exp(ways + size * math.log1p(-ratio) + count * math.log(ratio))
