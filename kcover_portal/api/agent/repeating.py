"""Reports that say what their node's last one said: most of what comes in. They are not read again."""

from dataclasses import dataclass

from kcover import wire
from kcover_portal.api.agent.credentials import Credential
from kcover_portal.fleet.services import hearing
from kcover_portal.incidents import services as incidents

MOST = 200_000  # nodes that are remembered, some 600 bytes each


@dataclass(frozen=True, slots=True)
class _Last:
    rest: bytes
    node: str
    boot_id: str
    agent: str
    told: hearing.Told


class Repeats:
    """What each node said last, but for faults, results of commands and what was wrong."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], _Last] = {}

    def read(self, credential: Credential, body: bytes) -> incidents.Delivery:
        """The report in a body, read only where it says something new. Raises EnvelopeError."""
        alike = wire.likeness(body)
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
                cluster=credential.cluster, node=last.node, decoded=wire.Decoded(report), told=last.told, body=body
            )
        decoded = wire.decode(body)
        report, told = decoded.report, hearing.told(decoded.report)
        # A fault is news however often it is told, and what is wrong in a report is told to the agent each time.
        if alike is not None and not (decoded.rejected or report.faults or report.command_results):
            if len(self._last) >= MOST and sender not in self._last:
                del self._last[next(iter(self._last))]
            self._last[sender] = _Last(alike.rest, report.node, report.boot_id, report.agent, told)
        return incidents.Delivery(cluster=credential.cluster, node=report.node, decoded=decoded, told=told)
