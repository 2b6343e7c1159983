"""Agents that are not heard of, seen from the rescues: what the portal does to a node silences its agent a while."""

from datetime import datetime

from django.db.models import Q

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent
from kcover_portal.incidents.services import silence
from kcover_portal.rescue.models import Rescue


def look(*, now: datetime) -> None:
    """Has silent agents noted, but for those of nodes that a rescue works on, or did a moment ago (invariant 35)."""
    just_now = Q(closed_at__gte=now - fleet.AGENT_SILENT_AFTER)
    at_work = Rescue.objects.filter(Q(state__in=(Rescue.State.WAITING, Rescue.State.RUNNING)) | just_now)
    silence.look(busy=Agent.objects.filter(node__in=at_work.values("node")), now=now)
