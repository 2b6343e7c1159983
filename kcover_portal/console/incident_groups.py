"""The incidents of a list as groups: by fault, node, GPU or job, so that one cause is one row."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.db.models import Count, Q, QuerySet
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from kcover_portal.console.fault_names import fault_name
from kcover_portal.incidents.models import Incident
from kcover_portal.shared_reads import incident_groups

MAX_CODES: Final = 4  # named in a row of another grouping

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
    """How a grouping is shown: its title, and a row's subject."""

    title: str | Promise
    subject: Callable[[dict[str, Any]], tuple[str, str, str, dict[str, str]]]


def title(by: str) -> str | Promise:
    """What a row of the grouping is."""
    return _GROUPINGS[by].title


def shown(page: Sequence[dict[str, Any]], rows: QuerySet[Incident], by: str) -> list[IncidentGroup]:
    """The groups of a page for people; one more query for the faults of each."""
    columns = incident_groups.GROUPINGS[by].columns
    codes = _codes(page, rows, by) if by != "fault" else {}
    found = []
    for row in page:
        label, detail, address, query = _GROUPINGS[by].subject(row)
        names = codes.get(tuple(row[column] for column in columns), [])
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


def _codes(page: Sequence[dict[str, Any]], rows: QuerySet[Incident], by: str) -> dict[tuple[Any, ...], list[str]]:
    """The names of the faults of each group, the most frequent first."""
    columns, wanted = incident_groups.GROUPINGS[by].columns, Q(pk__in=())
    for row in page:
        wanted |= Q(**{column: row[column] for column in columns})
    pairs = incident_groups.members(rows, by).filter(wanted).values_list(*columns, "kind", "code")
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


_GROUPINGS: Final[Mapping[str, _By]] = {
    "fault": _By(gettext_lazy("Fault"), _fault),
    "node": _By(gettext_lazy("Node"), _node),
    "gpu": _By(gettext_lazy("GPU"), _gpu),
    "job": _By(gettext_lazy("Job"), _job),
}
