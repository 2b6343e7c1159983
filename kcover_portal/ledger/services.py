"""The one way to write the ledger."""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from kcover_portal import doorbell
from kcover_portal.ledger import queries
from kcover_portal.ledger.models import Chain, Entry

ACTOR = 200  # characters of the name of who acts


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


_held: ContextVar[list[tuple[str, Sequence[Draft]]] | None] = ContextVar("held", default=None)


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
) -> None:
    """Appends one entry to the cluster's chain ("" is the installation's own); see ``append``."""
    draft = Draft(actor=actor, verb=verb, subject=subject, at=now, node=node, rescue=rescue, data=data)
    append(cluster, [draft])


def append(cluster: str, drafts: Sequence[Draft]) -> list[Entry]:
    """Appends entries in their order; inside a transaction they stand or fall with it.

    The chain's head row is locked from here to the end of the transaction, so append late in it, and once; inside
    ``last`` that is seen to, and nothing is returned.
    """
    if not drafts:
        return []
    if _held.get() is not None:
        _held.get().append((cluster, drafts))  # type: ignore[union-attr]  # looked at in the line before
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


@contextlib.contextmanager
def last() -> Iterator[None]:
    """Entries made inside are appended together at the end: use it right inside a transaction.

    So the chain's lock, for which all who write about the cluster queue, is taken after every other lock and held for
    the shortest time; taken in the middle it makes deadlocks with whoever locks a row first and writes then.
    """
    if _held.get() is not None:
        yield
        return
    held: list[tuple[str, Sequence[Draft]]] = []
    token = _held.set(held)
    try:
        yield
    finally:
        _held.reset(token)
    for cluster in sorted({cluster for cluster, _ in held}):  # of several chains all take the locks in one order
        append(cluster, [draft for name, drafts in held if name == cluster for draft in drafts])


def _begin(cluster: str) -> Chain:
    Chain.objects.get_or_create(cluster=cluster)
    return Chain.objects.select_for_update().get(cluster=cluster)
