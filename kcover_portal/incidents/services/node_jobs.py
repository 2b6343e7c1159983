"""Training jobs on faulty nodes, which may be a common cause."""

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction

from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import JobSeen


@transaction.atomic
def note_jobs(node: Node, jobs: Iterable[str], *, now: datetime) -> None:
    """Stores which jobs have pods on the node. A row with an empty name records that the node's jobs were looked up."""
    rows = [JobSeen(node=node, job=job, at=now) for job in sorted({"", *(job[:320] for job in jobs)})]
    JobSeen.objects.bulk_create(rows, update_conflicts=True, unique_fields=["node", "job"], update_fields=["at"])
