"""What a scope contains, and how much the guards allow there now. Nothing is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Sum

from kcover import reasons
from kcover.nodes import scopes
from kcover_portal.accounts import queries as accounts
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import node_scopes
from kcover_portal.jobs import queries as jobs
from kcover_portal.rescue.queries import blocking_budgets, headroom


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopePreview:
    """The nodes that the caller sees in a scope, with their GPUs and the jobs whose pods run there.

    ``jobs``: None if the cluster does not answer, and ``unavailable`` says why. ``budgets``: how many disruption
    budgets allow no eviction from these nodes now; None if they cannot be read. ``headroom``: see
    ``rescue.queries.headroom``. ``unknown``: names, selectors or values of the scope that no node has.
    """

    nodes: int
    gpus: int
    jobs: int | None
    budgets: int | None
    headroom: Mapping[str, int]
    unknown: Sequence[str]
    unavailable: reasons.Reason | None = None


def preview(
    cluster: Cluster, scope: scopes.Scope, seen: accounts.Scope, *, now: datetime, acts: bool = True
) -> ScopePreview:
    """Looks at the nodes of the scope inside ``seen``. Others count as unknown.

    ``acts``: False if nothing is done to the nodes, so neither disruption budgets nor guards are asked.
    Costs the same few statements for any scope, and reads the cluster's jobs and disruption budgets at most once in a
    few seconds.
    """
    visible = seen.rows(Node.objects.filter(cluster=cluster, in_cluster=True), node="")
    rows = node_scopes.nodes(cluster, scope).filter(pk__in=visible.values("pk"))
    sums = rows.aggregate(nodes=Count("pk"), gpus=Sum("gpus", default=0))
    names = set(rows.values_list("name", flat=True))
    number, because = _jobs(cluster, names, seen, now=now)
    return ScopePreview(
        nodes=sums["nodes"],
        gpus=sums["gpus"],
        jobs=number,
        budgets=_budgets(cluster, names, now=now) if acts else 0,
        headroom=headroom.of(cluster, rows, now=now) if acts else {},
        unknown=node_scopes.unknown(cluster, scope, among=visible),
        unavailable=because,
    )


def _jobs(
    cluster: Cluster, names: set[str], seen: accounts.Scope, *, now: datetime
) -> tuple[int | None, reasons.Reason | None]:
    if not names:
        return 0, None
    found, silent = jobs.jobs([cluster], seen, now=now)
    if silent:
        return None, silent[0].because
    return sum(not names.isdisjoint(job.nodes) for job in found), None


def _budgets(cluster: Cluster, names: set[str], *, now: datetime) -> int | None:
    if not names:
        return 0
    found = blocking_budgets.on_nodes(cluster, now=now)
    return None if found is None else sum(not names.isdisjoint(nodes) for nodes in found.values())
