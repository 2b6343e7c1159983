"""How many faulty nodes are still chance.

The project's own simulation of independent node faults (middle fault mix) found these numbers of distinct faulty nodes
improbable, p < 1e-4, within 10 min / 1 h / 6 h: 2/2/3 at 64 nodes, 2/3/4 at 128, 2/3/6 at 512, 3/4/8 at 1,250. All
twelve are what a Poisson process gives whose rate is between 1.45e-4 and 1.66e-4 faults per node and hour, so that law
is used for every size, with a rate between the two, instead of steps between four sizes. One fault alone is never
improbable enough to stop a rescue.
"""

import math
from datetime import timedelta

WINDOWS = (timedelta(minutes=10), timedelta(hours=1), timedelta(hours=6))
RATE = 1.55e-4  # independent faults per node and hour
IMPROBABLE = 1e-4


def improbable(nodes: int, *, window: timedelta) -> int:
    """The smallest number of faulty nodes, two at least, that chance explains with p < 1e-4 in ``window`` among
    ``nodes`` nodes: reached, it means a common cause."""
    expected = RATE * nodes * (window / timedelta(hours=1))
    if expected <= 0:
        return 2
    fewer = math.exp(-expected) * (1 + expected)  # the probability of none or one
    count = 2
    while 1 - fewer >= IMPROBABLE:
        fewer += math.exp(count * math.log(expected) - expected - math.lgamma(count + 1))
        count += 1
    return count
