"""Objects of a cluster that the portal leaves out because there are too many of them."""

from django.db import transaction

from kcover.reasons import Reason
from kcover_portal.fleet.models import Cluster


def note(cluster: Cluster, what: str, because: Reason | None) -> None:
    """Stores why objects of a kind are not read; None: all are. ``what``: the kind, a key of ``unread_objects``.

    Costs no statement if nothing changed.
    """
    told = because.to_json() if because is not None else None
    if cluster.unread_objects.get(what) == told:
        return
    with transaction.atomic():
        row = Cluster.objects.select_for_update().filter(pk=cluster.pk).first()  # another kind is read at the same time
        if row is None:
            return
        others = {key: value for key, value in row.unread_objects.items() if key != what}
        cluster.unread_objects = others if told is None else {**others, what: told}
        Cluster.objects.filter(pk=cluster.pk).update(unread_objects=cluster.unread_objects)
