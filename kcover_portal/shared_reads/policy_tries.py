"""Tries of policies as their owners read them: the incidents to try a text on, the progress, the results."""

import collections
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from kcover import reasons
from kcover.decisions import guards
from kcover.values.quote import short_text
from kcover_portal.accounts import queries as accounts
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.lib.errors import FieldError
from kcover_portal.policies.models import PolicyTry
from kcover_portal.rescue.decide import policy_tries

MAX_DAYS = 90
Counts = collections.Counter[str]


@dataclass(frozen=True, slots=True)
class Summary:
    """The state of a try. ``results``: one for each incident that was decided, as ``PolicyTryResult.data``."""

    done: int
    results: list[dict[str, Any]]
    before: Counts
    after: Counts
    rules: Counts = field(default_factory=collections.Counter)
    guards: Counts = field(default_factory=collections.Counter)

    @property
    def changed(self) -> list[dict[str, Any]]:
        """The results whose decision differs from that of the active rules."""
        return [one for one in self.results if one["changed"]]

    @property
    def nodes(self) -> list[str]:
        """The nodes (``cluster/name``) with a difference."""
        return sorted({f"{one['cluster']}/{one['node']}" for one in self.changed})


def tries(who: accounts.Principal) -> QuerySet[PolicyTry]:
    """The tries that ``who`` began."""
    return PolicyTry.objects.filter(owner=accounts.place_key(who))


def find_node(who: accounts.Principal, named: str) -> Node:
    """Returns the node of ``cluster/name``, or of ``name`` in the only cluster that has it. Raises FieldError."""
    cluster, _, name = named.rpartition("/")
    seen = accounts.visible(who, Node.objects.all(), node="").filter(name=name)
    found = list((seen.filter(cluster__name=cluster) if cluster else seen)[:2])
    node = found[0] if len(found) == 1 else None
    if node is None:
        raise FieldError("node", reasons.of("unknown_node", node=short_text(named)))
    return node


def begin(who: accounts.Principal, text: str, *, days: int | None = None, node: str = "", now: datetime) -> PolicyTry:
    """Begins a try of a valid text on the incidents of the last ``days``, or on the open ones, of one node or all.

    Raises FieldError for an unknown node, and ``policy_tries.TryRefused``.
    """
    rows = Incident.objects.filter(cluster__in=accounts.clusters_of(who), node__isnull=False)
    if days is not None:
        rows = rows.filter(opened_at__gte=now - timedelta(days=days))
    else:
        rows = rows.filter(state=Incident.State.OPEN)
    if node:
        rows = rows.filter(node=find_node(who, node))
    incidents = rows.order_by("-pk").values_list("pk", flat=True)[: policy_tries.MAX_INCIDENTS + 1]
    owner = accounts.place_key(who)
    return policy_tries.begin(text, incidents, owner=owner, past=days is not None, now=now)


def summary(who: accounts.Principal, row: PolicyTry) -> Summary:
    """Returns the progress and the results in the clusters that ``who`` sees today."""
    clusters = list(accounts.clusters_of(who).values_list("pk", flat=True))
    results = [{"incident": one.incident, **one.data} for one in row.results.filter(cluster__in=clusters)]
    after = [one["after"] for one in results]
    return Summary(
        done=row.total - len(row.pending) if row.state in PolicyTry.OPEN else row.results.count(),
        results=results,
        before=_count(one["before"]["answer"] for one in results),
        after=_count(one["answer"] for one in after),
        rules=_count(one["rule"] for one in after if one["rule"]),
        guards=_count(guard for one in after for guard in _guards(one)),
    )


def _count(names: Iterable[str]) -> Counts:
    return collections.Counter(names)


def _guards(decision: dict[str, Any]) -> set[str]:
    if decision["answer"] != "hold":
        return set()
    return {guard for reason in decision["reasons"] if (guard := guards.guard_of(reason["code"])) is not None}
