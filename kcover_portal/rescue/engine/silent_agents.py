"""Findings of the portal about nodes: a rescue that works on a node silences its agent and its device plugin for a
while, which is not a fault.
"""

from datetime import datetime

from django.db.models import Q

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent
from kcover_portal.incidents.services import replaced_machines, silence, unallocatable_gpus
from kcover_portal.rescue.models import Rescue


def check_all(*, now: datetime) -> None:
    """Records silent agents and missing GPUs, except on nodes that a rescue works on or has just worked on.

    That is invariant 35. Also closes the incidents of machines that were replaced.
    """
    just_now = Q(closed_at__gte=now - fleet.AGENT_SILENT_AFTER)
    at_work = Rescue.objects.filter(Q(state__in=(Rescue.State.WAITING, Rescue.State.RUNNING)) | just_now)
    silence.check(busy=Agent.objects.filter(node__in=at_work.values("node")), now=now)
    unallocatable_gpus.check(busy=at_work.values("node"), now=now)
    replaced_machines.close_all(now=now)
