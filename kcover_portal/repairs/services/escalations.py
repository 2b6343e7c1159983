"""Repairs that the portal reports: for rescues that called a person, for nodes that failed again on probation, and for
nodes that were rebooted too often.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from kcover import actors, reasons
from kcover.reasons import Reason
from kcover.repairs.repairs import Part
from kcover_portal.accounts.models import Role
from kcover_portal.fleet.models import Gpu, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.repairs import queries
from kcover_portal.repairs.models import Repair
from kcover_portal.repairs.services import desk
from kcover_portal.repairs.services.moves import RepairRefused
from kcover_portal.rescue.models import Rescue

log = logging.getLogger(__name__)
MAX_REPORTS = 50  # of each cause in one sweep; the next one is a minute away


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    """A node that needs a repair, and why."""

    node: Node
    incidents: Sequence[Incident]
    because: Sequence[Reason]
    rescue: Rescue | None = None


def report_escalated(*, now: datetime) -> list[Repair]:
    """Opens a repair for each node that automation left to people, or that failed again on probation.

    Nodes that an open repair covers are left out.
    """
    made: list[Repair] = []
    for cause in _causes():
        if any(row.node_id == cause.node.pk for row in made):
            continue
        try:
            made.append(
                desk.report(
                    cause.node,
                    part=part_of(cause.node, cause.incidents),
                    because=cause.because,
                    rescue=cause.rescue,
                    actor=actors.SYSTEM,
                    role=Role.OPERATOR.value,
                    now=now,
                )
            )
        except RepairRefused as error:  # a person was faster
            log.info("no repair of node %s: %s", cause.node.name, error)
    return made


def _causes() -> Iterator[_Cause]:
    for rescue in queries.escalated_rescues()[:MAX_REPORTS]:
        called = reasons.of("repair_of_rescue", rescue=str(rescue.pk))
        because = [reason for reason in (called, reasons.kept(rescue.because)) if reason is not None]
        incidents = list(rescue.incidents.order_by("pk"))
        yield _Cause(node=rescue.node, incidents=incidents, because=because, rescue=rescue)
    for rescue in queries.rescues_on_probation()[:MAX_REPORTS]:
        because = [reasons.of("repair_on_probation", rescue=str(rescue.pk), fault=rescue.code)]
        yield _Cause(node=rescue.node, incidents=list(rescue.incidents.order_by("pk")), because=because, rescue=rescue)
    for decision in queries.decisions_at_a_limit()[:MAX_REPORTS]:
        incidents = [decision.incident] if decision.incident else []
        yield _Cause(node=decision.node, incidents=incidents, because=decision.reasons[1:2])


def part_of(node: Node, incidents: Iterable[Incident]) -> Part:
    """The first GPU that one of the faults names; otherwise the machine as a whole."""
    for incident in incidents:
        gpu = _gpu(node, uuid=incident.gpu_uuid, device=incident.device)
        if gpu is not None:
            return Part(kind="gpu", serial=gpu.serial, slot=str(gpu.index))
    return Part()


def _gpu(node: Node, *, uuid: str, device: str) -> Gpu | None:
    """The GPU of the node with this UUID or PCI address, which may have a function part."""
    rows = Gpu.objects.filter(node=node)
    if uuid:
        return rows.filter(uuid=uuid).first()
    address = device.rsplit(".", 1)[0]
    return rows.filter(pci__istartswith=address).first() if address else None
