"""Warm standbys by pool and state, and recent shortages."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Final

from django.db.models import QuerySet
from django.http import QueryDict

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User
from kcover_portal.console.computed_lists import ComputedListing, ComputedRows
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.rescue.models import Assignment, Step
from kcover_portal.rescue.queries import standbys

MAX_RETURNED_SHOWN = 10  # how many returned standbys are listed
STATES: Final = ("ready", "reserved", "unfit")


@dataclass(frozen=True, slots=True)
class Spare:
    """A node marked as a spare; ``state`` is of ``presentation.TABLES["spare"]``."""

    node: Node
    state: str
    why: reasons.Reason | None  # that it is not free


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


def find(user: User, parameters: QueryDict, now: datetime) -> ComputedRows[Spare]:
    """The standbys by cluster and name that the person sees, and the address does not leave out."""
    return ComputedRows(chosen(_spares(clusters(user, parameters), now=now), parameters))


def clusters(user: User, parameters: QueryDict) -> QuerySet[Cluster]:
    """The clusters that the person sees whole, and the address does not leave out."""
    seen, name = accounts.clusters_of(user), STANDBYS.asked(parameters)["cluster"]
    return seen.filter(name=name) if name else seen


def chosen(spares: Iterable[Spare], parameters: QueryDict) -> list[Spare]:
    """The standbys that the address does not leave out by state or name."""
    text, state = STANDBYS.asked(parameters)["q"].casefold(), STANDBYS.chosen("state", parameters)
    return [one for one in spares if state in ("", one.state) and text in one.node.name.casefold()]


STANDBYS: Final[ComputedListing[Spare]] = ComputedListing(
    name="standbys",
    filters=("q", "cluster", "state"),
    find=find,
    choices={"state": STATES},
    columns={
        "cluster": attrgetter("node.cluster.name"),
        "pool": attrgetter("node.pool"),
        "node": attrgetter("node.name"),
        "state": attrgetter("state"),
        "because": lambda spare: str(spare.why) if spare.why else "",
    },
)


def _spares(clusters: Collection[Cluster] | QuerySet[Cluster], *, now: datetime) -> list[Spare]:
    nodes = Node.objects.filter(cluster__in=clusters).select_related("cluster")
    return [Spare(one.node, _state(one), one.busy) for one in standbys.spares(nodes, now=now)]


def _state(spare: standbys.Spare) -> str:
    if spare.busy is None:
        return "ready"
    return "reserved" if spare.fact.promised else "unfit"


def of(clusters: Collection[Cluster], *, now: datetime) -> Standbys:
    """The standbys of the clusters, in a handful of queries, regardless of their number."""
    assignments = list(standbys.assignments().filter(spare__cluster__in=clusters))
    pools: dict[tuple[str, str], list[Spare]] = {}
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
