"""How near each cluster came to the limits of its breaker and its budgets, over time."""

import json
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db.models import Exists, OuterRef
from django.utils.translation import gettext as _

from kcover import actions
from kcover.decisions import guards
from kcover.values import limits
from kcover_portal.console.reads import budget_groups, trends
from kcover_portal.console.reads.safety import where_of
from kcover_portal.console.reads.step_facts import duration
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import node_scopes
from kcover_portal.reports import slots
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import capacity

MAX_GROUPS: Final = 6  # budgets of a cluster that are shown
Taken = tuple[int, datetime, datetime]  # a node, from when and until when


@dataclass(frozen=True, slots=True)
class Headroom:
    """One limit: its present value, the most nodes in each bar, and rows for bars with any.

    ``scope``: the group of nodes that the limit is for; "": the whole cluster. ``window``: of a breaker. A row is a
    time, the most nodes in the bar, and how many more the present limit would have allowed.
    """

    cluster: str
    limit: int
    starts: Sequence[int]
    peaks: Sequence[int]
    window: str = ""
    scope: str = ""

    @property
    def rows(self) -> Sequence[tuple[datetime, int, int]]:
        """The newest first."""
        return [
            (datetime.fromtimestamp(start, UTC), peak, max(0, self.limit - peak))
            for start, peak in zip(self.starts, self.peaks, strict=True)
            if peak
        ][::-1]

    @property
    def text(self) -> str:
        values = {"window": self.window, "limit": self.limit}
        if self.window:
            return (
                _("The most nodes that were isolated within %(window)s, in each bar. The present limit is %(limit)s.")
                % values
            )
        return (
            _("The most nodes that were isolated or in rescue at once, in each bar. The present limit is %(limit)s.")
            % values
        )

    @property
    def starts_json(self) -> str:
        return json.dumps(self.starts)

    @property
    def series_json(self) -> str:
        of_breaker = _("Isolated within %(window)s, at most") % {"window": self.window}
        return json.dumps([[of_breaker if self.window else _("Isolated or in rescue, at most"), self.peaks]])


def of_breakers(clusters: Collection[Cluster], *, now: datetime, span: str) -> list[Headroom]:
    """The clusters with a breaker; two queries each."""
    return [_breaker(cluster, now=now, span=span) for cluster in clusters if fleet.guards_of(cluster).breaker.enabled]


def of_budgets(clusters: Collection[Cluster], *, now: datetime, span: str) -> list[Headroom]:
    """The budgets of the clusters by their present groups of nodes, of each cluster the nearest to their limits."""
    limited = [cluster for cluster in clusters if fleet.guards_of(cluster).budget.is_set]
    return [found for cluster in limited for found in _budgets(cluster, now=now, span=span)]


def _budgets(cluster: Cluster, *, now: datetime, span: str) -> list[Headroom]:
    """A node uses a slot while a rescue is open on it, and while the portal keeps work off it."""
    starts = trends.buckets(span, now=now)
    taken: dict[int, list[Taken]] = {}
    for one in slots.taken(cluster, since=datetime.fromtimestamp(starts[0], UTC), until=now):
        taken.setdefault(one[0], []).append(one)
    found = [
        Headroom(
            cluster=cluster.name,
            limit=limit.of(len(nodes)),
            starts=list(starts),
            peaks=_most_at_once((one for node in nodes for one in taken.get(node, ())), starts),
            scope=name,
        )
        for name, limit, nodes in _groups(cluster, fleet.guards_of(cluster).budget)
    ]
    return sorted(found, key=lambda one: (one.limit - max(one.peaks), one.scope))[:MAX_GROUPS]


def _groups(cluster: Cluster, budget: guards.Budget) -> Iterable[tuple[str, limits.Limit, Collection[int]]]:
    """The name, the limit and the eligible nodes of each group that a budget covers."""
    rows = capacity.eligible(cluster).order_by()
    if budget.limit is not None:
        members: dict[str | None, set[int]] = {}
        grouped = rows.annotate(group=budget_groups.expression(budget.by))
        for node, group in grouped.values_list("pk", "group"):
            members.setdefault(group, set()).add(node)
        for group, nodes in members.items():
            yield budget_groups.name(budget.by, group), budget.limit, nodes
    for one in budget.scopes:
        inside = node_scopes.nodes(cluster, one.scope).values("pk")
        yield where_of(one.scope), one.limit, set(rows.filter(pk__in=inside).values_list("pk", flat=True))


def _most_at_once(taken: Iterable[Taken], starts: range) -> list[int]:
    """How many nodes were taken at the same time, at most, in each bar."""
    changes = [(at, begins, node) for node, since, until in taken for at, begins in ((since, True), (until, False))]
    peaks, nodes, bar = [0] * len(starts), Counter[int](), 0
    for at, begins, node in sorted(changes):  # at the same moment, a slot is given back before it is taken
        until = min((int(at.timestamp()) - starts[0]) // starts.step, len(starts) - 1)
        while bar < until:
            bar += 1
            peaks[bar] = len(nodes)
        nodes[node] += 1 if begins else -1
        if not nodes[node]:
            del nodes[node]
        peaks[bar] = max(peaks[bar], len(nodes))
    return peaks


def _breaker(cluster: Cluster, *, now: datetime, span: str) -> Headroom:
    breaker = fleet.guards_of(cluster).breaker
    limit = breaker.limit.of(capacity.eligible(cluster).count())
    starts = trends.buckets(span, now=now)
    since = datetime.fromtimestamp(starts[0], UTC)
    isolating = sorted(actions.names(lambda spec: spec.isolates))
    kept = Step.objects.filter(rescue=OuterRef("pk"), name__in=isolating).exclude(state__in=("cancelled", "skipped"))
    rows = Rescue.objects.filter(Exists(kept), cluster=cluster, isolating_at__gte=since - breaker.window)
    begun = rows.order_by("isolating_at").values_list("node", "isolating_at")
    peaks = [0] * len(starts)
    for at, number in _sliding(begun, breaker.window):
        bar = (int(at.timestamp()) - starts[0]) // starts.step
        if 0 <= bar < len(peaks):
            peaks[bar] = max(peaks[bar], number)
    window = duration(breaker.window)
    return Headroom(cluster=cluster.name, limit=limit, starts=list(starts), peaks=peaks, window=window)


def _sliding(begun: Iterable[tuple[int, datetime | None]], window: timedelta) -> Iterable[tuple[datetime, int]]:
    """At each isolation, how many nodes were isolated within the window that ends there."""
    within: deque[tuple[int, datetime]] = deque()
    nodes: Counter[int] = Counter()
    for node, at in begun:
        if at is None:
            continue
        within.append((node, at))
        nodes[node] += 1
        while within[0][1] <= at - window:
            left, _at = within.popleft()
            nodes[left] -= 1
            if not nodes[left]:
                del nodes[left]
        yield at, len(nodes)
