"""Incidents as groups: by fault, node, GPU or job, so that one cause is one row."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum

from kcover_portal.incidents.models import STORM, Incident

NEAR: Final = timedelta(hours=1)  # between a fault and the last look at the node's jobs


@dataclass(frozen=True, slots=True)
class Grouping:
    """The columns that name a group, and the incidents that take part."""

    columns: tuple[str, ...]
    where: Q


_ON_NODE = Q(node__isnull=False)
GROUPINGS: Final[Mapping[str, Grouping]] = {
    "fault": Grouping(("kind", "code"), _ON_NODE),
    "node": Grouping(("cluster__name", "node__name"), _ON_NODE),
    "gpu": Grouping(("cluster__name", "node__name", "gpu_uuid"), _ON_NODE & ~Q(gpu_uuid="")),
    "job": Grouping(
        ("cluster__name", "node__jobs_seen__job"),
        Q(node__jobs_seen__job__gt="", node__jobs_seen__at__gte=F("opened_at") - NEAR)
        & Q(node__jobs_seen__at__lte=F("last_at") + NEAR),
    ),
}


def members(rows: QuerySet[Incident], by: str) -> QuerySet[Incident]:
    """The incidents that take part in a grouping."""
    return rows.exclude(kind=STORM).filter(GROUPINGS[by].where).order_by()


def groups(rows: QuerySet[Incident], by: str) -> QuerySet[Any]:
    """The groups as rows of the database: those with open incidents first, then the latest.

    Beside the columns: ``incidents``, ``opened`` (open ones, without those of programs), ``on`` (nodes), ``lines`` (log
    lines and reports of all of them), ``first`` and ``last``.
    """
    columns = GROUPINGS[by].columns
    found: QuerySet[Any] = (
        members(rows, by)
        .values(*columns)
        .annotate(
            incidents=Count("pk", distinct=True),
            opened=Count("pk", filter=Q(state=Incident.State.OPEN, is_user_fault=False), distinct=True),
            on=Count("node", distinct=True),
            lines=Sum("count"),
            first=Min("opened_at"),
            last=Max("last_at"),
        )
        .order_by("-opened", "-last", *columns)
    )
    return found
