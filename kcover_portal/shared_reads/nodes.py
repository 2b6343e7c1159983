"""Annotations of nodes."""

from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce

from kcover.plans import lifecycle
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Rescue


def open_faults() -> Combinable:
    """The number of a node's open faults; faults of user programs do not count."""
    faults = Incident.objects.filter(node=OuterRef("pk"), state=Incident.State.OPEN, is_user_fault=False)
    return Coalesce(Subquery(faults.order_by().values("node").annotate(n=Count("pk")).values("n")), 0)


def open_rescue() -> Combinable:
    """The key of a node's open rescue; None if there is none."""
    return Subquery(Rescue.objects.filter(node=OuterRef("pk"), state__in=lifecycle.OPEN_RESCUE).values("pk")[:1])


def with_condition(rows: QuerySet[Node]) -> QuerySet[Node]:
    """The nodes with ``faults`` and ``rescue``, in the same query."""
    return rows.annotate(faults=open_faults(), rescue=open_rescue())
