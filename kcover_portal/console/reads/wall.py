"""The content of the wallboard: few figures and the worst entries of each list, with the number of those left out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

from kcover_portal.accounts.queries import Scope
from kcover_portal.console.badge import Badge
from kcover_portal.console.reads import fleet, needs as need_cards, overview
from kcover_portal.fleet import queries as fleet_queries
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.lib import localization
from kcover_portal.needs import queries as needs
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import needs_person

T = TypeVar("T")
PARAMETERS: Final = {"cluster", "pool"}

# Rows of each list. A screen shows those for which it has room; the heading has the number of all.
MAX_NEEDS, MAX_ACTIVE, MAX_APPROVALS, MAX_HEALED, MAX_CLUSTERS = 8, 6, 3, 4, 4


@dataclass(frozen=True, slots=True)
class Top(Generic[T]):
    """The first rows of a list, and how many the list has."""

    rows: Sequence[T]
    total: int

    @property
    def more(self) -> int:
        """How many are left out."""
        return self.total - len(self.rows)


@dataclass(frozen=True, slots=True)
class WallNeed:
    """A need as one can read it from a distance."""

    look: Badge
    title: str
    why: str
    cluster: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Contact:
    """The last answer of a cluster to the watch; ``away``: it does not answer now."""

    name: str
    at: datetime | None
    away: bool


@dataclass(frozen=True, slots=True)
class Wall:
    needs: Top[WallNeed]
    counts: Sequence[overview.Count]
    nodes: int
    gpus: int
    active: Top[overview.ActiveRescue]
    approvals: Top[Rescue]
    healed: Top[Rescue]
    contacts: Top[Contact]


def of(scope: Scope, *, now: datetime) -> Wall:
    """The wallboard of this part of the fleet."""
    clusters = list(scope.clusters().order_by("name"))
    found = fleet.summary(scope, now=now)
    entries = needs.entries(scope, clusters, now=now).open
    working = overview.open_rescues(scope).filter(needs_human=False)
    asked = scope.rows(needs_person.awaiting_approval()).select_related("node", "cluster", "decision")
    healed = overview.healed(scope, now=now)
    active = overview.active(scope, now=now)
    return Wall(
        needs=Top([_need(entry) for entry in entries[:MAX_NEEDS]], len(entries)),
        counts=overview.counts(found.counts),
        nodes=found.nodes,
        gpus=found.gpus,
        active=Top(active[:MAX_ACTIVE], working.count() if len(active) == overview.MAX_ROWS else len(active)),
        approvals=Top(list(asked.order_by("expires_at", "pk")[:MAX_APPROVALS]), asked.count()),
        healed=Top(healed.rescues[:MAX_HEALED], healed.number),
        contacts=_contacts(clusters, now=now),
    )


def part(seen: Scope, given: Mapping[str, str]) -> tuple[Scope, str] | None:
    """Returns the part of the fleet that the parameters ``cluster`` and ``pool`` name, and its name for people.

    None if they name nothing inside the scope, or if there is another parameter.
    """
    cluster, pool = given.get("cluster", ""), given.get("pool", "")
    if not {*given} <= PARAMETERS or (pool and not cluster):
        return None
    if not cluster:
        return seen, ""
    row = seen.clusters().filter(name=cluster).first()
    found = seen.within(row, pool) if row is not None else Scope.of()
    if found.is_empty or (pool and not found.rows(Node.objects.filter(gone_at=None), node="").exists()):
        return None
    return found, f"{cluster} / {pool}" if pool else cluster


def _need(entry: needs.Entry) -> WallNeed:
    return WallNeed(
        look=need_cards.LOOKS[entry.kind],
        title=localization.say(entry.what).rstrip(".。"),
        why=localization.sentence(entry.why),
        cluster=entry.cluster.name,
        since=entry.since,
    )


def _contacts(clusters: Iterable[Cluster], *, now: datetime) -> Top[Contact]:
    """The last contact to each cluster: silent ones first, then the longest ago."""
    found = [Contact(one.name, one.watched_at, fleet_queries.out_of_reach(one, now=now)) for one in clusters]
    found.sort(key=lambda one: (not one.away, one.at is not None, one.at or now, one.name))
    return Top(found[:MAX_CLUSTERS], len(found))
