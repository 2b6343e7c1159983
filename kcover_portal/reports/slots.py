"""The slots of budgets that nodes used in the past."""

from collections.abc import Iterator
from datetime import datetime

from kcover_portal.accounts.queries import Scope
from kcover_portal.fleet.models import Cluster
from kcover_portal.reports import rescues
from kcover_portal.reports.records import Part
from kcover_portal.rescue.models import Rescue


def taken(cluster: Cluster, *, since: datetime, until: datetime) -> Iterator[tuple[int, datetime, datetime]]:
    """The node and the time of each open rescue and each isolation by the portal, cut to the period."""
    part = Part(scope=Scope.of(cluster), cluster=cluster)
    rows = rescues.overlapping(part.rows(Rescue.objects.all()), since=since, until=until)
    works, isolations = rescues.read(part.rows, rows, gone={}, since=since, until=until)
    times = [*((work.node, work.open) for work in works.values()), *((one.node, one.time) for one in isolations)]
    for node, time in times:
        begin, end = max(time.since, since), min(time.until or until, until)
        if begin < end:
            yield node, begin, end
