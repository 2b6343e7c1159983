"""Warm standbys by pool and state, and recent shortages."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.rescue.models import Assignment, Step
from kcover_portal.rescue.queries import standbys

MAX_RETURNED_SHOWN = 10  # how many returned standbys are listed


@dataclass(frozen=True, slots=True)
class Spare:
    """A node marked as a spare; ``state`` is of ``presentation.TABLES["spare"]``."""

    node: Node
    state: str
    why: object  # the reason that it is not free, None if it is


@dataclass(frozen=True, slots=True)
class StandbyPool:
    """The spares of one pool of one cluster."""

    cluster: str
    name: str
    spares: Sequence[Spare]
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


def of(clusters: Collection[Cluster], *, now: datetime) -> Standbys:
    """The standbys of the clusters, in a handful of queries, regardless of their number."""
    nodes = Node.objects.filter(cluster__in=clusters).select_related("cluster")
    assignments = list(standbys.assignments().filter(spare__cluster__in=clusters))
    pools: dict[tuple[str, str], list[Spare]] = {}
    for spare in standbys.spares(nodes, now=now):
        state = "ready" if spare.busy is None else "reserved" if spare.fact.promised else "unfit"
        key = (spare.node.cluster.name, spare.node.pool)
        pools.setdefault(key, []).append(Spare(spare.node, state, spare.busy))
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
