"""The work that waits for a worker."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Min, Q

from kcover_portal.fleet.models import Cluster, Command
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Rescue


@dataclass(frozen=True, slots=True)
class DueWork:
    """Rescues and faults that are due, commands that agents have not answered, and the oldest due date."""

    rescues: int
    faults: int
    commands: int
    oldest: datetime | None

    def waited(self, *, now: datetime) -> float:
        """The seconds for which the oldest has been due; 0 if nothing is."""
        return max(0.0, (now - self.oldest).total_seconds()) if self.oldest is not None else 0.0


def of(clusters: Collection[Cluster] | None, *, now: datetime) -> DueWork:
    """The due work of the clusters; None: of all. Three queries."""
    here = Q() if clusters is None else Q(cluster__in=clusters)
    due = Rescue.objects.filter(here, state__in=("waiting", "running"), due_at__lte=now)
    judge = Incident.objects.filter(here, state=Incident.State.OPEN, decide_at__lte=now)
    rescues = due.aggregate(n=Count("pk"), oldest=Min("due_at"))
    faults = judge.aggregate(n=Count("pk"), oldest=Min("decide_at"))
    oldest = [moment for moment in (rescues["oldest"], faults["oldest"]) if moment is not None]
    offered = Command.objects.filter(state=Command.State.OFFERED, expires_at__gt=now)
    if clusters is not None:
        offered = offered.filter(node__cluster__in=clusters)
    return DueWork(rescues["n"], faults["n"], offered.count(), min(oldest, default=None))
