"""The audit log as a person or token may read it, and verifications of its chains."""

from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from kcover_portal.accounts import queries as accounts
from kcover_portal.anchors.models import Verification
from kcover_portal.anchors.services import verifications as background
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.ledger.models import Entry


def entries(who: accounts.Principal) -> QuerySet[Entry]:
    """Entries of the clusters and of the pools' nodes that ``who`` may see.

    Those of the installation need a role on everything, those of a cluster without a node a role on the cluster.

    Selected by the clusters' names, because the audit log outlives the clusters.
    """
    seen = accounts.scope(who)
    if seen.wide:
        return Entry.objects.all()
    found = Q(cluster__in=Cluster.objects.filter(pk__in=seen.whole).values("name"))
    for cluster in Cluster.objects.filter(pk__in=seen.pools):
        nodes = Node.objects.filter(cluster=cluster, pool__in=seen.pools[cluster.pk])
        found |= Q(cluster=cluster.name, node__in=nodes.values("name"))
    return Entry.objects.filter(found)


def begin_verification(who: accounts.Principal, *, now: datetime) -> Verification:
    """Begins to verify every chain of which ``who`` sees an entry. Returns the open one if there is one.

    Raises places.Busy.
    """
    return background.begin(_chains(who), owner=accounts.place_key(who), now=now)


def verifications(who: accounts.Principal) -> QuerySet[Verification]:
    """The verifications that ``who`` began."""
    return Verification.objects.filter(owner=accounts.place_key(who))


def verdicts(who: accounts.Principal, row: Verification) -> list[dict[str, Any]]:
    """The verdicts on the chains of which ``who`` sees an entry today, by cluster."""
    seen = _chains(who) if row.verdicts else ()
    return [{**one, "intact": one["broken_at"] is None} for one in row.verdicts if one["cluster"] in seen]


def _chains(who: accounts.Principal) -> frozenset[str]:
    return frozenset(entries(who).order_by().values_list("cluster", flat=True).distinct())
