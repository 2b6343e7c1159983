"""Reading incidents."""

from collections.abc import Sequence
from datetime import datetime

from django.db.models import Q, QuerySet

from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident


def to_judge(*, now: datetime, limit: int = 200) -> list[int]:
    """Incidents whose judgement is due, oldest first."""
    rows = Incident.objects.filter(judge_at__lte=now, state=Incident.State.OPEN).order_by("judge_at", "pk")
    return list(rows.values_list("pk", flat=True)[:limit])


def open_on(node: Node) -> QuerySet[Incident]:
    """Open incidents of a node, programs' doings included, newest first."""
    return Incident.objects.filter(node=node, state=Incident.State.OPEN).order_by("-pk")


def faults_since(node: Node, since: datetime, *, boot_id: str = "") -> Sequence[Incident]:
    """Open incidents that are faults of the node, and of this boot (judged by the boot id that the agent sent with
    them, whenever it was delivered); without a boot id those seen at or after a moment of the portal's own time.
    """
    rows = open_on(node).filter(program=False)
    if boot_id:
        return list(rows.filter(Q(boot_id=boot_id) | Q(boot_id="", last_at__gte=since)))
    return list(rows.filter(last_at__gte=since))
