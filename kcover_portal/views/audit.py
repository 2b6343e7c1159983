"""The audit log as a person or token may read it."""

from django.db.models import QuerySet

from kcover_portal.accounts import queries as accounts
from kcover_portal.ledger.models import Entry


def entries(who: accounts.Principal) -> QuerySet[Entry]:
    """Entries of the clusters that ``who`` may see; those of the installation only with a role on everything.

    Selected by the clusters' names, because the audit log outlives the clusters.
    """
    if accounts.sees_all(who):
        return Entry.objects.all()
    return Entry.objects.filter(cluster__in=accounts.clusters_of(who).values("name"))
