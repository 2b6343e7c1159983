"""How near each cluster came to the limit of its breaker: the most isolations within its window, over time."""

import json
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Exists, OuterRef
from django.utils.translation import gettext as _

from kcover import actions
from kcover_portal.console.reads import trends
from kcover_portal.console.reads.step_facts import duration
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import capacity


@dataclass(frozen=True, slots=True)
class Headroom:
    """One cluster: the present limit, the most nodes within a window in each bar, and rows for bars with any.

    A row is a time, the most nodes within a window, and how many more the present limit would have allowed.
    """

    cluster: str
    limit: int
    window: str
    starts: Sequence[int]
    peaks: Sequence[int]
    rows: Sequence[tuple[datetime, int, int]]

    @property
    def starts_json(self) -> str:
        return json.dumps(self.starts)

    @property
    def series_json(self) -> str:
        return json.dumps([[_("Isolated within %(window)s, at most") % {"window": self.window}, self.peaks]])


def of(clusters: Collection[Cluster], *, now: datetime, span: str) -> list[Headroom]:
    """The clusters with a breaker; two queries each."""
    return [_of(cluster, now=now, span=span) for cluster in clusters if fleet.guards_of(cluster).breaker.enabled]


def _of(cluster: Cluster, *, now: datetime, span: str) -> Headroom:
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
    found = [
        (datetime.fromtimestamp(start, UTC), peak, max(0, limit - peak))
        for start, peak in zip(starts, peaks, strict=True)
        if peak
    ]
    return Headroom(cluster.name, limit, duration(breaker.window), list(starts), peaks, found[::-1])


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
