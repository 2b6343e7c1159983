"""Append to the ledger; nothing else writes it."""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from kcover import audit
from kcover_portal import doorbell
from kcover_portal.ledger import queries
from kcover_portal.ledger.models import Chain, Entry

MAX_ACTOR = 200  # characters of an actor's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An act without its place in the chain yet; ``at`` is when it happened."""

    act: audit.Act
    actor: str
    at: datetime

    def columns(self) -> audit.Columns:
        """The columns of the entry that the act decides."""
        return self.act.to_entry()


_held: ContextVar[list[tuple[str, Sequence[Draft]]] | None] = ContextVar("held", default=None)


def record(cluster: str, act: audit.Act, *, actor: str, now: datetime) -> None:
    """Appends one entry to the cluster's chain ("" is the installation's own); see ``append``."""
    append(cluster, [Draft(act=act, actor=actor, at=now)])


def append(cluster: str, drafts: Sequence[Draft]) -> list[Entry]:
    """Appends entries in order, as part of the caller's transaction.

    The chain's head row stays locked until the transaction ends, so append late in it, and once; ``last`` takes care of
    that. Inside ``last`` it returns an empty list.
    """
    if not drafts:
        return []
    if _held.get() is not None:
        _held.get().append((cluster, drafts))  # type: ignore[union-attr]  # checked in the line above
        return []
    with transaction.atomic(savepoint=False):
        head = Chain.objects.select_for_update().filter(cluster=cluster).first() or _begin(cluster)
        entries = []
        for draft in drafts:
            columns = draft.columns()
            entry = Entry(
                cluster=cluster,
                sequence=head.sequence + 1,
                at=draft.at,
                actor=draft.actor,
                verb=columns.verb,
                subject=columns.subject,
                node=columns.node,
                rescue=columns.rescue,
                data=columns.data,
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
    """Appends the entries made inside together at the end. Use it directly inside a transaction.

    So the chain's lock, which every writer of the cluster needs, is taken after every other lock and held for the
    shortest time. Taken earlier, it deadlocks with writers that lock a row first and append afterwards.
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
    for cluster in sorted({cluster for cluster, _ in held}):  # one order for the locks of several chains
        append(cluster, [draft for name, drafts in held if name == cluster for draft in drafts])


def _begin(cluster: str) -> Chain:
    Chain.objects.get_or_create(cluster=cluster)
    return Chain.objects.select_for_update().get(cluster=cluster)
