"""The audit log as a person or token may read it."""

from django.db.models import Q, QuerySet

from kcover_portal.accounts import queries as accounts
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
