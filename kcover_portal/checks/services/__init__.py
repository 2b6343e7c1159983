"""Check runs: checks on many nodes, requested from the agents batch by batch, like Autopilot's ``/status``.

The rows are the whole state of a run. Any process that calls ``advance`` takes it one step further, so that a run ends
whether or not a client waits for it. A check that needs idle GPUs is requested only if no pod holds any, and from one
run at a time per node; the agent verifies it again before it starts.
"""

from kcover_portal.checks.services import iperf_rings, job_ends
from kcover_portal.checks.services.deep_checks import begin_again as begin_again
from kcover_portal.checks.services.iperf_rings import (
    MAX_RING_NODES as MAX_RING_NODES,
    PLANES as PLANES,
    Traffic as Traffic,
)
from kcover_portal.checks.services.node_checks import results_of as results_of
from kcover_portal.checks.services.runs import (
    CLUSTER_CALL_LEASE as CLUSTER_CALL_LEASE,
    MAX_RUNS as MAX_RUNS,
    CheckRunRefused as CheckRunRefused,
    advance as advance,
    begin as begin,
    prune as prune,
    stop as stop,
)

ring_step_count = iperf_rings.step_count
look_at_jobs = job_ends.look
prune_jobs = job_ends.prune
