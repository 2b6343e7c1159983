"""Warm standbys by pool and state, and recent shortages."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Final

from django.db.models import QuerySet
from django.http import QueryDict

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User
from kcover_portal.console.computed_lists import ComputedListing, ComputedRows
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.rescue.models import Assignment, Step
from kcover_portal.rescue.queries import standbys

MAX_RETURNED_SHOWN = 10  # how many returned standbys are listed


@dataclass(frozen=True, slots=True)
class StandbyPool:
    """The spares of one pool of one cluster."""

    cluster: str
    name: str
    spares: Sequence[standbys.Spare]
    in_service: int

    @property
    def ready(self) -> int:
        return sum(spare.state == "ready" for spare in self.spares)

    @property
    def reserved(self) -> int:
        return sum(spare.state == "reserved" for spare in self.spares)

    @property
    def unfit(self) -> int:
        return len(self.spares) - self.ready - self.reserved


@dataclass(frozen=True, slots=True)
class Standbys:
    pools: Sequence[StandbyPool]
    assignments: Sequence[Assignment]
    shortages: Sequence[Step]
    given_back: Sequence[Assignment]

    @property
    def ready(self) -> int:
        return sum(pool.ready for pool in self.pools)

    @property
    def reserved(self) -> int:
        return sum(assignment.state == Assignment.State.RESERVED for assignment in self.assignments)

    @property
    def in_service(self) -> int:
        return sum(assignment.state == Assignment.State.ACTIVE for assignment in self.assignments)

    @property
    def unfit(self) -> int:
        return sum(pool.unfit for pool in self.pools)

    @property
    def any(self) -> bool:
        return bool(self.pools or self.assignments or self.shortages)


def find(user: User, parameters: QueryDict, now: datetime) -> ComputedRows[standbys.Spare]:
    """The standbys by cluster and name that the person sees, and the address does not leave out."""
    return ComputedRows(chosen(_spares(clusters(user, parameters), now=now), parameters))


def clusters(user: User, parameters: QueryDict) -> QuerySet[Cluster]:
    """The clusters that the person sees whole, and the address does not leave out."""
    seen, name = accounts.clusters_of(user), STANDBYS.asked(parameters)["cluster"]
    return seen.filter(name=name) if name else seen


def chosen(spares: Iterable[standbys.Spare], parameters: QueryDict) -> list[standbys.Spare]:
    """The standbys that the address does not leave out by state or name."""
    return standbys.matching(spares, text=STANDBYS.asked(parameters)["q"], state=STANDBYS.chosen("state", parameters))


STANDBYS: Final[ComputedListing[standbys.Spare]] = ComputedListing(
    name="standbys",
    filters=("q", "cluster", "state"),
    find=find,
    choices={"state": standbys.STATES},
    columns={
        "cluster": attrgetter("node.cluster.name"),
        "pool": attrgetter("node.pool"),
        "node": attrgetter("node.name"),
        "state": attrgetter("state"),
        "because": lambda spare: str(spare.busy) if spare.busy else "",
    },
)


def _spares(clusters: Collection[Cluster] | QuerySet[Cluster], *, now: datetime) -> list[standbys.Spare]:
    nodes = Node.objects.filter(cluster__in=clusters).select_related("cluster")
    return standbys.spares(nodes, now=now)


def of(clusters: Collection[Cluster], *, now: datetime) -> Standbys:
    """The standbys of the clusters, in a handful of queries, regardless of their number."""
    assignments = list(standbys.assignments().filter(spare__cluster__in=clusters))
    pools: dict[tuple[str, str], list[standbys.Spare]] = {}
    for spare in _spares(clusters, now=now):
        pools.setdefault((spare.node.cluster.name, spare.node.pool), []).append(spare)
    serving: dict[tuple[str, str], int] = {}
    for assignment in assignments:
        if assignment.state == Assignment.State.ACTIVE:
            key = (assignment.spare.cluster.name, assignment.spare.pool)
            serving[key] = serving.get(key, 0) + 1
    released = Assignment.objects.filter(spare__cluster__in=clusters, state=Assignment.State.RELEASED)
    return Standbys(
        pools=[
            StandbyPool(cluster, name, pools.get((cluster, name), ()), serving.get((cluster, name), 0))
            for cluster, name in sorted({*pools, *serving})
        ],
        assignments=assignments,
        shortages=list(standbys.shortages().filter(rescue__cluster__in=clusters)),
        given_back=list(released.select_related("spare__cluster", "origin", "rescue")[:MAX_RETURNED_SHOWN]),
    )
