"""The incidents of a list as groups: by fault, node, GPU or job, so that one cause is one row."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from kcover_portal.console.fault_names import fault_name
from kcover_portal.incidents.models import STORM, Incident

MAX_CODES: Final = 4  # named in a row of another grouping
NEAR: Final = timedelta(hours=1)  # between a fault and the last look at the node's jobs

GROUPINGS: Final[Mapping[str, str | Promise]] = {
    "fault": gettext_lazy("By fault"),
    "node": gettext_lazy("By node"),
    "gpu": gettext_lazy("By GPU"),
    "job": gettext_lazy("By job"),
}


@dataclass(frozen=True, slots=True)
class IncidentGroup:
    """A row. ``query`` of the list that has just these incidents, "" if no filter does; ``page``: of its subject.

    ``occurrences``: log lines and reports of all of them; ``nodes``: how many nodes they are on.
    """

    label: str
    detail: str
    page: str
    query: str
    incidents: int
    open: int
    occurrences: int
    nodes: int
    faults: Sequence[str]
    more_faults: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class _By:
    """How a grouping reads its rows: its title, columns, the rows that take part, and a row's subject."""

    title: str | Promise
    columns: tuple[str, ...]
    where: Q
    subject: Callable[[dict[str, Any]], tuple[str, str, str, dict[str, str]]]


def title(by: str) -> str | Promise:
    """What a row of the grouping is."""
    return _GROUPINGS[by].title


def groups(rows: QuerySet[Incident], by: str) -> QuerySet[Any]:
    """The groups as rows of the database, those with open incidents first, then the latest; for ``shown``."""
    how = _GROUPINGS[by]
    found: QuerySet[Any] = (
        rows.exclude(kind=STORM)
        .filter(how.where)
        .order_by()
        .values(*how.columns)
        .annotate(
            incidents=Count("pk", distinct=True),
            opened=Count("pk", filter=Q(state=Incident.State.OPEN, is_user_fault=False), distinct=True),
            on=Count("node", distinct=True),
            lines=Sum("count"),
            first=Min("opened_at"),
            last=Max("last_at"),
        )
        .order_by("-opened", "-last", *how.columns)
    )
    return found


def shown(page: Sequence[dict[str, Any]], rows: QuerySet[Incident], by: str) -> list[IncidentGroup]:
    """The groups of a page for people; one more query for the faults of each."""
    how = _GROUPINGS[by]
    codes = _codes(page, rows, how) if by != "fault" else {}
    found = []
    for row in page:
        label, detail, address, query = how.subject(row)
        names = codes.get(tuple(row[column] for column in how.columns), [])
        found.append(
            IncidentGroup(
                label=label,
                detail=detail,
                page=address,
                query=urlencode(query),
                incidents=row["incidents"],
                open=row["opened"],
                occurrences=row["lines"],
                nodes=row["on"],
                faults=names[:MAX_CODES],
                more_faults=max(0, len(names) - MAX_CODES),
                first_at=row["first"],
                last_at=row["last"],
            )
        )
    return found


def _codes(page: Sequence[dict[str, Any]], rows: QuerySet[Incident], how: _By) -> dict[tuple[Any, ...], list[str]]:
    """The names of the faults of each group, the most frequent first."""
    wanted = Q(pk__in=())
    for row in page:
        wanted |= Q(**{column: row[column] for column in how.columns})
    pairs = (
        rows.exclude(kind=STORM).filter(how.where).filter(wanted).order_by().values_list(*how.columns, "kind", "code")
    )
    counted = pairs.annotate(n=Count("pk", distinct=True)).order_by("-n", "kind", "code")
    found: dict[tuple[Any, ...], list[str]] = {}
    for *key, kind, code, _number in counted:
        found.setdefault(tuple(key), []).append(fault_name(kind, code))
    return found


def _fault(row: dict[str, Any]) -> tuple[str, str, str, dict[str, str]]:
    nodes = ngettext("%(n)d node", "%(n)d nodes", row["on"]) % {"n": row["on"]}
    return fault_name(row["kind"], row["code"]), nodes, "", {"kind": row["kind"], "code": row["code"]}


def _node(row: dict[str, Any]) -> tuple[str, str, str, dict[str, str]]:
    cluster, name = row["cluster__name"], row["node__name"]
    return name, cluster, reverse("console:node", args=(cluster, name)), {"cluster": cluster, "node": name}


def _gpu(row: dict[str, Any]) -> tuple[str, str, str, dict[str, str]]:
    cluster, name, gpu = row["cluster__name"], row["node__name"], row["gpu_uuid"]
    page = reverse("console:node", args=(cluster, name))
    return gpu, _("GPU of %(node)s") % {"node": name}, page, {"cluster": cluster, "node": name, "gpu": gpu}


def _job(row: dict[str, Any]) -> tuple[str, str, str, dict[str, str]]:
    cluster, job = row["cluster__name"], row["node__jobs_seen__job"]
    page = f"{reverse('console:jobs')}?{urlencode({'cluster': cluster, 'namespace': job.partition('/')[0]})}"
    nodes = ngettext("%(n)d node", "%(n)d nodes", row["on"]) % {"n": row["on"]}
    return job, f"{cluster}, {nodes}", page, {}


_ON_NODE = Q(node__isnull=False)
_GROUPINGS: Final[Mapping[str, _By]] = {
    "fault": _By(gettext_lazy("Fault"), ("kind", "code"), _ON_NODE, _fault),
    "node": _By(gettext_lazy("Node"), ("cluster__name", "node__name"), _ON_NODE, _node),
    "gpu": _By(gettext_lazy("GPU"), ("cluster__name", "node__name", "gpu_uuid"), _ON_NODE & ~Q(gpu_uuid=""), _gpu),
    "job": _By(
        gettext_lazy("Job"),
        ("cluster__name", "node__jobs_seen__job"),
        Q(node__jobs_seen__job__gt="", node__jobs_seen__at__gte=F("opened_at") - NEAR)
        & Q(node__jobs_seen__at__lte=F("last_at") + NEAR),
        _job,
    ),
}
