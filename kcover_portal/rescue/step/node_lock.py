"""The lock on a node: at most one call that changes a node is in flight, over all workers (invariant 8).

The node's open rescue may act while its worker holds the lease. Everything else takes the node's lock for one call: the
withdrawal of a request after a rescue has ended, and every change of a standby. Neither side begins while the other is
at work. When a rescue is ended under its worker, the lock passes to the call that may be under way. The labels of a
node's health need no lock, because only one writer writes them.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from django.db import transaction

from kcover import reasons
from kcover_portal.fleet.models import Node
from kcover_portal.lib import doorbell
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.step import lease
from kcover_portal.runtime.services import claims


class Busy(reasons.ExplainedError):
    """Another call about this node may be under way."""


class NodeLock:
    """A node's lock while it is held."""

    def __init__(self, node: Node, *, now: datetime) -> None:
        self._node, self._by = node, uuid.uuid4().hex
        self._until = _acquire(node, by=self._by, now=now, again=False)

    def renew(self, *, now: datetime) -> None:
        """Extends the lock so that it covers the next call of one write.

        Raises Busy if the lock has expired and someone else works on the node; then the call must not be made.
        """
        if self._until - now < lease.TIME - lease.RENEW_AFTER:
            self._until = _acquire(self._node, by=self._by, now=now, again=True)

    def release(self, *, now: datetime) -> None:
        """Releases the lock after the call."""
        _release(self._node, by=self._by, now=now)


@contextmanager
def acquire(node: Node, *, clock: Callable[[], datetime]) -> Iterator[NodeLock]:
    """Holds the node's lock for one call outside of its own rescue. Raises Busy. It expires if the worker dies."""
    lock = NodeLock(node, now=clock())
    try:
        yield lock
    except Exception:  # not BaseException: what kills a worker leaves no time to release anything
        lock.release(now=clock())
        raise
    lock.release(now=clock())


def is_locked(node: Node, *, now: datetime) -> bool:
    """Returns whether someone other than the node's rescue holds the lock.

    The row must have been read after the rescue's lease was taken, or under a row lock.
    """
    return node.locked_until is not None and node.locked_until > now


def hand_to_worker(rescue: Rescue, *, now: datetime) -> None:
    """Passes the lock to the call that the rescue's worker may be making.

    Part of the transaction that ends the rescue, and before that end. The node's row is locked first, as everywhere.
    """
    Node.objects.select_for_update(no_key=True).get(pk=rescue.node_id)
    row = Rescue.objects.select_for_update(no_key=True, of=("self",)).get(pk=rescue.pk)
    if row.lease_until is not None and row.lease_until > now:
        Node.objects.filter(pk=rescue.node_id).update(locked_by=_worker_of(row), locked_until=row.lease_until)


def release(rescue: Rescue, *, now: datetime) -> None:
    """Releases the lock that ``hand_to_worker`` set: the worker that lost the rescue no longer has a call under way."""
    _release(rescue.node, by=_worker_of(rescue), now=now)


def _worker_of(rescue: Rescue) -> str:
    """The holder's name of the worker that has, or had, the rescue with this token."""
    return f"rescue {rescue.pk} token {rescue.token}"


def _acquire(node: Node, *, by: str, now: datetime, again: bool) -> datetime:
    """Takes the lock; returns when it expires. ``again``: the caller holds it; nobody else may. Raises Busy."""
    with transaction.atomic():
        row = Node.objects.select_for_update(no_key=True).get(pk=node.pk)
        # The rescue is locked as well: this waits for a worker that is claiming it, and a later worker sees the lock.
        rescue = queries.open_on(row, lock=True)
        if again and row.locked_by != by:
            raise Busy(reasons.of("node_lock_expired", node=row.name))
        acts = rescue is not None and rescue.lease_until is not None and rescue.lease_until > now
        if acts or (is_locked(row, now=now) and row.locked_by != by):
            raise Busy(reasons.of("node_call_in_flight", node=row.name))
        if rescue is not None and rescue.lease_until is not None:  # even if expired: its worker may only be slow
            Rescue.objects.filter(pk=rescue.pk).update(lease_until=None, token=claims.NEXT_TOKEN)
        Node.objects.filter(pk=row.pk).update(locked_by=by, locked_until=now + lease.TIME)
    return now + lease.TIME


def _release(node: Node, *, by: str, now: datetime) -> None:
    """Releases the lock and wakes the rescue that waited; does nothing if someone else holds it by now."""
    if not Node.objects.filter(pk=node.pk, locked_by=by).update(locked_by="", locked_until=None):
        return
    due = Rescue.objects.filter(node=node, state__in=("waiting", "running"), due_at__lte=now)
    for rescue in due.values_list("pk", flat=True):
        doorbell.ring("rescue.run", rescue)
