"""Appends to the ledger. Nothing else writes it."""

import contextlib
import functools
import logging
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from kcover import audit
from kcover_portal.config import log_context
from kcover_portal.ledger import queries
from kcover_portal.ledger.models import Chain, Entry
from kcover_portal.lib import doorbell
from kcover_portal.lib.prepared import Prepared, PreparedInsert, PreparedUpdate

log = logging.getLogger(__name__)

MAX_ACTOR_CHARACTERS = 200  # characters of an actor's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An act that has no place in the chain yet. ``at`` is when it happened."""

    act: audit.Act
    actor: str
    at: datetime

    def columns(self) -> audit.Columns:
        return self.act.to_entry()


_HEAD = Prepared(lambda cluster: Chain.objects.select_for_update().filter(cluster=cluster), cluster=str)
_MOVE_HEAD = PreparedUpdate(lambda cluster: Chain.objects.filter(cluster=cluster), cluster=str)
_ENTRIES = PreparedInsert(Entry)
_collected: ContextVar[list[tuple[str, Sequence[Draft]]] | None] = ContextVar("collected", default=None)


def record(cluster: str, act: audit.Act, *, actor: str, now: datetime) -> None:
    """Appends one entry to the cluster's chain; "" is the installation. See ``append``."""
    append(cluster, [Draft(act=act, actor=actor, at=now)])


def append(cluster: str, drafts: Sequence[Draft]) -> list[Entry]:
    """Appends entries in order, as part of the caller's transaction.

    The chain's head row stays locked until the transaction ends, so append once and late; ``last`` does this. Inside
    ``last`` the result is an empty list.
    """
    if not drafts:
        return []
    collected = _collected.get()
    if collected is not None:
        collected.append((cluster, drafts))
        return []
    with transaction.atomic(savepoint=False):
        head = _HEAD.first(cluster=cluster) or _begin(cluster)
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
        _ENTRIES.run(entries)
        _MOVE_HEAD.run({"sequence": head.sequence, "digest": head.digest}, cluster=cluster)
        told = [row for row, one in zip(entries, drafts, strict=True) if _is_told(one.act)]
        transaction.on_commit(functools.partial(_log, cluster, told), robust=True)
    doorbell.publish("audit", entries[-1].pk, cluster=cluster)
    return entries


def _is_told(act: audit.Act) -> bool:
    """Returns whether the log has a line about the act: not that a call begins, a node enrols, or nothing is to do."""
    if isinstance(act, audit.DecisionMade):
        return act.answer != audit.DecisionAnswer.NONE
    return not isinstance(act, audit.ClusterCallBegun | audit.TokenCreated)


def _log(cluster: str, entries: Sequence[Entry]) -> None:
    """One line for each act on a node: a cordon, an eviction, a reboot, a refusal."""
    for entry in entries:
        if entry.node or entry.rescue:
            ids = {"cluster": cluster, "node": entry.node, "rescue": entry.rescue}
            with log_context.bound(**{name: value for name, value in ids.items() if value}):
                rescue = f", rescue {entry.rescue}" if entry.rescue else ""
                log.info("%s: %s on %s/%s%s", entry.verb, entry.subject, cluster, entry.node or "-", rescue)


@contextlib.contextmanager
def last() -> Iterator[None]:
    """Collects the entries recorded inside and appends them at the end. Use it directly inside a transaction.

    All writers of a cluster need the chain's lock. It is taken after all other locks, so that it is held briefly and
    does not deadlock with writers that lock a row first and append afterwards.
    """
    if _collected.get() is not None:
        yield
        return
    collected: list[tuple[str, Sequence[Draft]]] = []
    token = _collected.set(collected)
    try:
        yield
    finally:
        _collected.reset(token)
    for cluster in sorted({cluster for cluster, _ in collected}):  # locks of several chains are taken in one order
        append(cluster, [draft for name, drafts in collected if name == cluster for draft in drafts])


def _begin(cluster: str) -> Chain:
    Chain.objects.get_or_create(cluster=cluster)
    return Chain.objects.select_for_update().get(cluster=cluster)
