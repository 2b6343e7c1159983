"""How many faulty nodes chance explains.

The project simulated independent node faults (middle fault mix). These numbers of distinct faulty nodes were improbable
(p < 1e-4) within 10 min / 1 h / 6 h: 2/2/3 at 64 nodes, 2/3/4 at 128, 2/3/6 at 512, 3/4/8 at 1,250. A Poisson process
with 1.45e-4 to 1.66e-4 faults per node and hour gives exactly these twelve numbers. So that law is used for every fleet
size, with a rate in between. A single fault never stops a rescue.
"""

import math
from datetime import timedelta

WINDOWS = (timedelta(minutes=10), timedelta(hours=1), timedelta(hours=6))
FAULTS_PER_NODE_HOUR = 1.55e-4  # independent faults per node and hour
CHANCE_LIMIT = 1e-4


def improbable(nodes: int, *, window: timedelta) -> int:
    """The smallest number of faulty nodes, at least two, that chance explains with p < 1e-4.

    Reaching it within ``window`` among ``nodes`` nodes means that a shared cause is likely.
    """
    expected = FAULTS_PER_NODE_HOUR * nodes * (window / timedelta(hours=1))
    if expected <= 0:
        return 2
    fewer = math.exp(-expected) * (1 + expected)  # the probability of none or one
    count = 2
    while 1 - fewer >= CHANCE_LIMIT:
        fewer += math.exp(count * math.log(expected) - expected - math.lgamma(count + 1))
        count += 1
    return count
