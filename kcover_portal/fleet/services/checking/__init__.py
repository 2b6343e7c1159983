"""Runs of checks on many nodes: asked of the agents batch by batch, like Autopilot's ``/status``.

The rows are the run: whoever calls ``advance`` takes it one step on, and it ends whether or not anyone waits for it.
What needs idle GPUs is asked only where no pod holds any, one run at a time on a node; the agent looks again itself.
"""

from kcover_portal.fleet.services.checking.repeating import begin_again
from kcover_portal.fleet.services.checking.rings import MOST, Traffic
from kcover_portal.fleet.services.checking.running import BUSY, MOST_RUNS, Refused, advance, begin, prune, stop
from kcover_portal.fleet.services.checking.turns import results_of

MOST_IN_A_RING = MOST

__all__ = [
    "BUSY",
    "MOST_IN_A_RING",
    "MOST_RUNS",
    "Refused",
    "Traffic",
    "advance",
    "begin",
    "begin_again",
    "prune",
    "results_of",
    "stop",
]
