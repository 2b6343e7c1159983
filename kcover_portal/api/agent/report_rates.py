"""Limits the reports of each node, so that a stolen credential cannot occupy the one writer of all nodes.

This is GCRA, a leaky bucket with one number per node: the time at which the node's bucket is empty. The numbers are in
the memory of this process. Quiet nodes are forgotten.
"""

import math
import time
from collections.abc import Callable, Sequence

from kcover import reasons
from kcover.faults.fault import Fault
from kcover_portal.api.agent import ingest_counters
from kcover_portal.api.agent.problem_responses import Refusal

BURST_REPORTS = 20  # of one node at once, after a pause
SUSTAINED_REPORTS_PER_SECOND = 10  # of one node; an agent sends its spool of 10,000 reports after an outage
DISTINCT_FAULTS_PER_REPORT = 50  # each further 50 in a report count as one more report; an agent sends at most 32
MAX_NODES = 200_000  # in memory, twice: nodes that reported lately, and those before them
NODES_KEPT_SECONDS = 120.0  # longer than any node has to wait

_INTERVAL_SECONDS = 1 / SUSTAINED_REPORTS_PER_SECOND
_BURST_SECONDS = BURST_REPORTS * _INTERVAL_SECONDS
_MAX_AHEAD_SECONDS = NODES_KEPT_SECONDS / 2
_ROUNDING_SECONDS = 1e-6  # sums of intervals are not exact

NodeKey = tuple[int, str]  # key of the cluster, name of the node


class ReportRates:
    """The reports of each node in the last seconds. ``clock`` is monotonic, in seconds. For one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._current: dict[NodeKey, float] = {}
        self._earlier: dict[NodeKey, float] = {}
        self._renewed_at = -math.inf

    def __len__(self) -> int:
        return len(self._current) + len(self._earlier)

    def admit(self, node: NodeKey) -> None:
        """Counts a report of the node. Raises Refusal (429) with the seconds to wait if it has sent too many."""
        now = self._clock()
        if now - self._renewed_at > NODES_KEPT_SECONDS or len(self._current) >= MAX_NODES:
            self._current, self._earlier, self._renewed_at = {}, self._current, now
        ahead = self._ahead(node, now)
        if ahead > _BURST_SECONDS - _INTERVAL_SECONDS + _ROUNDING_SECONDS:
            wait = ahead - _BURST_SECONDS + _INTERVAL_SECONDS
            limit = reasons.of("report_rate", node=node[1], rate=SUSTAINED_REPORTS_PER_SECOND, burst=BURST_REPORTS)
            ingest_counters.limited()
            raise Refusal(429, limit, retry_after=math.ceil(wait))
        self._current[node] = now + ahead + _INTERVAL_SECONDS

    def charge(self, node: NodeKey, faults: Sequence[Fault]) -> None:
        """Counts a report with many distinct faults as several, because each one costs statements."""
        if len(faults) > DISTINCT_FAULTS_PER_REPORT:
            distinct = {(fault.kind, fault.code, fault.pci, fault.gpu_uuid) for fault in faults}
            more = len(distinct) // DISTINCT_FAULTS_PER_REPORT
            now = self._clock()
            self._current[node] = now + min(self._ahead(node, now) + more * _INTERVAL_SECONDS, _MAX_AHEAD_SECONDS)

    def forget(self) -> None:
        """Forgets all nodes."""
        self._current, self._earlier = {}, {}

    def _ahead(self, node: NodeKey, now: float) -> float:
        """The seconds until the bucket of the node is empty."""
        at = self._current.get(node) or self._earlier.get(node, now)
        return max(at - now, 0.0)
