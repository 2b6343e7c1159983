"""The one way to write the ledger."""

from datetime import datetime
from typing import Any

from django.db import transaction

from kcover_portal import doorbell
from kcover_portal.ledger import queries
from kcover_portal.ledger.models import Chain, Entry


def write(
    cluster: str,
    *,
    actor: str,
    verb: str,
    subject: str,
    now: datetime,
    node: str = "",
    rescue: int | None = None,
    data: dict[str, Any] | None = None,
) -> Entry:
    """Appends one entry to the cluster's chain ("" is the installation's own) and returns it.

    ``data`` must be plain JSON. Inside a transaction the entry stands or falls with it. The chain's head row is locked
    from here to the end of the transaction, so write late in it.
    """
    with transaction.atomic():
        Chain.objects.get_or_create(cluster=cluster)
        head = Chain.objects.select_for_update().get(cluster=cluster)
        entry = Entry(
            cluster=cluster,
            sequence=head.sequence + 1,
            at=now,
            actor=actor,
            verb=verb,
            subject=subject,
            node=node,
            rescue=rescue,
            data=data or {},
            previous=head.digest,
        )
        entry.digest = queries.digest(entry)
        entry.save(force_insert=True)
        Chain.objects.filter(cluster=cluster).update(sequence=entry.sequence, digest=entry.digest)
    doorbell.tell("audit", entry.pk, cluster=cluster)
    return entry
