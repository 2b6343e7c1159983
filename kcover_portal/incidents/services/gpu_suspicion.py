"""Suspicions against a GPU on which many programs fail. They never change the incidents of the programs themselves."""

from datetime import datetime, timedelta

from django.db import transaction

from kcover.faults import program_context
from kcover_portal.incidents import queries
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import record_faults
from kcover_portal.incidents.services.portal_fault import PortalFault

LOOK_BACK = timedelta(minutes=5)  # for incidents that were seen again; the task runs every minute
MAX_INCIDENTS_PER_ROUND = 200


def suspect_gpus(*, now: datetime) -> int:
    """Opens an incident ``other gpu-suspect`` for each GPU that is suspected; returns how many were opened.

    An open suspicion is not repeated. No rule acts on it unless the rule lists it.
    """
    opened = 0
    for row in queries.program_faults(since=now - LOOK_BACK, limit=MAX_INCIDENTS_PER_ROUND):
        found = queries.program_context_of(row, now=now)
        if found is not None and found.suspect is program_context.Suspect.GPU:
            opened += _open(row, found, now=now)
    return opened


@transaction.atomic
def _open(row: Incident, found: program_context.Judgement, *, now: datetime) -> bool:
    node = row.node
    same = {"kind": "other", "code": program_context.SUSPECT_CODE, "device": row.device, "state": Incident.State.OPEN}
    if node is None or Incident.objects.filter(node=node, **same).exists():
        return False
    is_uuid = row.device.startswith("GPU-")
    seen = PortalFault(
        kind="other",
        code=program_context.SUSPECT_CODE,
        pci=None if is_uuid else row.device or None,
        gpu_uuid=row.gpu_uuid or (row.device if is_uuid else None),
        because=found.because,
        source="portal",
    )
    return record_faults.keep_fault(node, seen, boot_id=row.boot_id, now=now)
