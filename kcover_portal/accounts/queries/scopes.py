"""Grants, and the part of the fleet that they add up to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from django.db.models import Model, Q, QuerySet

from kcover_portal.fleet.models import Cluster

Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class Grant:
    """Verbs in one pool of a cluster, in a cluster (``pool`` ""), or everywhere (``cluster`` None)."""

    verbs: frozenset[str]
    cluster: int | None
    pool: str = ""

    def covers(self, cluster: int | None, pool: str) -> bool:
        """Returns whether the place is this grant's, or part of it."""
        return self.cluster is None or (self.cluster == cluster and self.pool in ("", pool))


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of the fleet in which somebody holds a verb: everything, whole clusters, and pools of others by cluster.

    Rows are filtered here and nowhere else. A row that is not about one node is visible only with its whole cluster.
    """

    wide: bool
    whole: frozenset[int]
    pools: Mapping[int, frozenset[str]]

    def where(self, cluster: str = "cluster", node: str | None = "node") -> Q:
        """The condition on rows. ``cluster``, ``node``: paths from a row to them.

        ``node`` "": the rows are nodes; None: the rows are not about one node.
        """
        if self.wide:
            return Q()
        found = Q(**{f"{cluster}__in": self.whole})
        if node is not None:
            pool = f"{node}__pool__in" if node else "pool__in"
            for pk, names in self.pools.items():
                found |= Q(**{cluster: pk, pool: names})
        return found

    def rows(self, rows: QuerySet[Row], cluster: str = "cluster", node: str | None = "node") -> QuerySet[Row]:
        """The rows inside the scope. See ``where``."""
        return rows if self.wide else rows.filter(self.where(cluster, node))

    def clusters(self) -> QuerySet[Cluster]:
        """The clusters of which at least a pool is inside the scope."""
        return Cluster.objects.all() if self.wide else Cluster.objects.filter(pk__in={*self.whole, *self.pools})

    @property
    def has_clusters(self) -> bool:
        """Returns whether at least one whole cluster is inside the scope."""
        return self.wide or bool(self.whole)

    @property
    def is_empty(self) -> bool:
        """Returns whether nothing is inside the scope."""
        return not self.has_clusters and not self.pools

    def __contains__(self, cluster: Cluster) -> bool:
        return self.wide or cluster.pk in self.whole

    def within(self, cluster: Cluster, pool: str = "") -> "Scope":
        """Returns the part of this scope that lies in the cluster, or in one pool of it; never more than the scope."""
        if cluster in self:
            return Scope(False, frozenset(), {cluster.pk: frozenset((pool,))}) if pool else Scope.of(cluster)
        seen = self.pools.get(cluster.pk, frozenset())
        kept = seen & {pool} if pool else seen
        return Scope(False, frozenset(), {cluster.pk: kept} if kept else {})

    @classmethod
    def of(cls, *clusters: Cluster) -> "Scope":
        """These whole clusters, whoever asks."""
        return cls(False, frozenset(cluster.pk for cluster in clusters), {})
