"""Check runs: checks on many nodes, requested from the agents batch by batch, like Autopilot's ``/status``.

The rows are the whole state of a run. Any process that calls ``advance`` takes it one step further, so that a run ends
whether or not a client waits for it. A check that needs idle GPUs is requested only if no pod holds any, and from one
run at a time per node; the agent verifies it again before it starts.
"""

from kcover_portal.checks.services.deep_checks import begin_again
from kcover_portal.checks.services.iperf_rings import MAX_RING_NODES, PLANES, Traffic
from kcover_portal.checks.services.iperf_rings import step_count as ring_step_count
from kcover_portal.checks.services.job_ends import look as look_at_jobs
from kcover_portal.checks.services.job_ends import prune as prune_jobs
from kcover_portal.checks.services.node_checks import results_of
from kcover_portal.checks.services.runs import (
    CLUSTER_CALL_LEASE,
    MAX_RUNS,
    CheckRunRefused,
    advance,
    begin,
    prune,
    stop,
)

__all__ = [
    "CLUSTER_CALL_LEASE",
    "MAX_RING_NODES",
    "MAX_RUNS",
    "PLANES",
    "CheckRunRefused",
    "Traffic",
    "advance",
    "begin",
    "begin_again",
    "look_at_jobs",
    "prune",
    "prune_jobs",
    "results_of",
    "ring_step_count",
    "stop",
]
