"""Limits the reports of each node, so that a stolen credential cannot occupy the one writer of all nodes."""

import math
import time
from collections.abc import Callable, Sequence

from kcover import reasons
from kcover.faults.fault import Fault
from kcover_portal.api.agent import ingest_counters
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.api.leaky_buckets import LeakyBuckets

BURST_REPORTS = 20  # of one node at once, after a pause
SUSTAINED_REPORTS_PER_SECOND = 10  # of one node; an agent sends its spool of 10,000 reports after an outage
DISTINCT_FAULTS_PER_REPORT = 8  # each further 8 in a report count as another report, because each costs statements

# Each 128 KiB, or 256 objects, of a body count as another report, because the parser is one for all nodes.
BYTES_PER_REPORT, OBJECTS_PER_REPORT = 128 << 10, 256

NodeKey = tuple[int, str]  # key of the cluster, name of the node


class ReportRates(LeakyBuckets[NodeKey]):
    """The reports of each node in the last seconds. ``clock`` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(rate=SUSTAINED_REPORTS_PER_SECOND, burst=BURST_REPORTS, clock=clock)

    def admit(self, node: NodeKey, count: int = 1) -> None:
        """Counts ``count`` reports of the node. Raises Refusal (429) with the seconds to wait if it sent too many."""
        if wait := self.take(node, count):
            limit = reasons.of("report_rate", node=node[1], rate=SUSTAINED_REPORTS_PER_SECOND, burst=BURST_REPORTS)
            ingest_counters.limited()
            raise Refusal(429, limit, retry_after=math.ceil(wait))

    def admit_body(self, node: NodeKey, body: bytes) -> None:
        """Counts a large body as several reports before it is decoded. Raises Refusal (429) as ``admit`` does."""
        if more := max(len(body) // BYTES_PER_REPORT, body.count(b"{") // OBJECTS_PER_REPORT):
            self.admit(node, more)

    def charge(self, node: NodeKey, faults: Sequence[Fault]) -> bool:
        """Counts a report with many distinct faults as several, because each one costs statements.

        Returns whether it has more than DISTINCT_FAULTS_PER_REPORT.
        """
        if len(faults) <= DISTINCT_FAULTS_PER_REPORT:
            return False
        distinct = len({(fault.kind, fault.code, fault.pci, fault.gpu_uuid) for fault in faults})
        if more := distinct // DISTINCT_FAULTS_PER_REPORT:
            self.add(node, more)
        return distinct > DISTINCT_FAULTS_PER_REPORT
