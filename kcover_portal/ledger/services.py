"""The one way to write the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from kcover_portal import doorbell
from kcover_portal.ledger import queries
from kcover_portal.ledger.models import Chain, Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An entry that has yet to get its place in the chain. ``data`` must be plain JSON; ``at`` is when it happened."""

    actor: str
    verb: str
    subject: str
    at: datetime
    node: str = ""
    rescue: int | None = None
    data: dict[str, Any] | None = None


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
    """Appends one entry to the cluster's chain ("" is the installation's own) and returns it; see ``append``."""
    draft = Draft(actor=actor, verb=verb, subject=subject, at=now, node=node, rescue=rescue, data=data)
    return append(cluster, [draft])[0]


def append(cluster: str, drafts: Sequence[Draft]) -> list[Entry]:
    """Appends entries in their order; inside a transaction they stand or fall with it.

    The chain's head row is locked from here to the end of the transaction, so append late in it, and once.
    """
    if not drafts:
        return []
    with transaction.atomic(savepoint=False):
        head = Chain.objects.select_for_update().filter(cluster=cluster).first() or _begin(cluster)
        entries = []
        for draft in drafts:
            entry = Entry(
                cluster=cluster,
                sequence=head.sequence + 1,
                at=draft.at,
                actor=draft.actor,
                verb=draft.verb,
                subject=draft.subject,
                node=draft.node,
                rescue=draft.rescue,
                data=draft.data or {},
                previous=head.digest,
            )
            entry.digest = queries.digest(entry)
            head.sequence, head.digest = entry.sequence, entry.digest
            entries.append(entry)
        Entry.objects.bulk_create(entries)
        Chain.objects.filter(cluster=cluster).update(sequence=head.sequence, digest=head.digest)
    doorbell.tell("audit", entries[-1].pk, cluster=cluster)
    return entries


def _begin(cluster: str) -> Chain:
    Chain.objects.get_or_create(cluster=cluster)
    return Chain.objects.select_for_update().get(cluster=cluster)
