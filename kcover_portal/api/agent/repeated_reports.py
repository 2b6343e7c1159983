"""Recognizes reports that repeat their node's previous one, which most do; they are not decoded again."""

from dataclasses import dataclass

from kcover import wire
from kcover_portal.api.agent.credentials import Credential
from kcover_portal.fleet.services import agent_reports
from kcover_portal.incidents import services as incidents

MAX_REMEMBERED_NODES = 200_000  # about 600 bytes each


@dataclass(frozen=True, slots=True)
class _Last:
    rest: bytes
    node: str
    boot_id: str
    agent: str
    digest: agent_reports.ReportDigest


class Repeats:
    """The last report of each node, without faults, command results and rejected items."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], _Last] = {}

    def read(self, credential: Credential, body: bytes) -> incidents.Delivery:
        """The report in a body; decoded only if it differs from the previous one. Raises EnvelopeError."""
        alike = wire.fingerprint(body)
        sender = (credential.cluster.pk, credential.node)  # tokens change, of a pod each hour
        last = self._last.get(sender)
        if alike is not None and last is not None and alike.rest == last.rest:
            report = wire.Report(
                node=last.node,
                boot_id=last.boot_id,
                batch_id=alike.batch_id,
                sent_at=alike.sent_at,
                agent=last.agent,
            )
            return incidents.Delivery(
                cluster=credential.cluster, node=last.node, decoded=wire.Decoded(report), digest=last.digest, body=body
            )
        decoded = wire.decode(body)
        report, digest = decoded.report, agent_reports.digest_of(decoded.report)
        # A fault is new in each report, and rejected items must be answered each time.
        if alike is not None and not (decoded.rejected or report.faults or report.command_results):
            if len(self._last) >= MAX_REMEMBERED_NODES and sender not in self._last:
                del self._last[next(iter(self._last))]
            self._last[sender] = _Last(alike.rest, report.node, report.boot_id, report.agent, digest)
        return incidents.Delivery(cluster=credential.cluster, node=report.node, decoded=decoded, digest=digest)
