"""Turns: at most one act is in flight on a node, over all workers (invariant 8).

The node's open rescue acts while its worker holds the lease. Whatever else writes to the node takes a turn for that one
call: who withdraws what an ended rescue asked for, and another rescue whose standby it is. Neither begins while the
other is at it. A rescue that is ended under its worker leaves the node's turn to the call that may be under way.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, QuerySet

from kcover_portal import doorbell
from kcover_portal.fleet.models import Node
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Rescue

LEASE = timedelta(seconds=30)  # longer than any single call may take (25 s); renewed before each write
MUCH_OF_IT = timedelta(seconds=3)


class Busy(Exception):
    """Somebody else's call to the cluster about this node may be under way."""


class Turn:
    """A node's turn while it is taken."""

    def __init__(self, node: Node, *, until: datetime) -> None:
        self._node, self._until = node, until

    def stay(self, *, now: datetime) -> None:
        """Between two calls of one write: makes the turn cover the next one. Raises Busy where it has run out and is
        somebody else's; then the next call must not be made."""
        if self._until - now >= LEASE - MUCH_OF_IT:
            return
        if not _mine(self._node, self._until).update(taken_until=now + LEASE):
            raise Busy(f"the turn on {self._node.name} ran out")
        self._until = now + LEASE

    def give_back(self, *, now: datetime) -> None:
        """The call is over."""
        give_back(self._node, self._until, now=now)


@contextmanager
def taken(node: Node, *, clock: Callable[[], datetime]) -> Iterator[Turn]:
    """The node's turn for one call, outside of its own rescue. Raises Busy. Where the worker dies it runs out."""
    turn = Turn(node, until=_take(node, now=clock()))
    try:
        yield turn
    except Exception:  # nothing less: what kills a worker leaves no time to give anything back
        turn.give_back(now=clock())
        raise
    turn.give_back(now=clock())


def runs(node: Node, *, now: datetime) -> bool:
    """Whether somebody else than the node's rescue has the turn, by a row that was read after the rescue's lease was
    taken, or under the node's lock."""
    return node.taken_until is not None and node.taken_until > now


def leave(rescue: Rescue, *, now: datetime) -> None:
    """Leaves the turn to the call that the rescue's worker may be in: part of the transaction that ends the rescue, and
    before that. The node's row is locked first, as everywhere."""
    Node.objects.select_for_update(no_key=True).get(pk=rescue.node_id)
    rows = Rescue.objects.filter(pk=rescue.pk).select_for_update(no_key=True)
    lease = rows.values_list("lease_until", flat=True).first()
    if lease is not None and lease > now:
        Node.objects.filter(pk=rescue.node_id).update(taken_until=lease)


def give_back(node: Node, until: datetime | None, *, now: datetime) -> None:
    """Gives back the turn that runs until then; nothing where it is over, or somebody else's."""
    if until is None or not _mine(node, until).update(taken_until=None):
        return
    due = Rescue.objects.filter(node=node, state__in=("waiting", "running"), due_at__lte=now)
    for rescue in due.values_list("pk", flat=True):
        doorbell.ring("rescue.run", rescue)


def _take(node: Node, *, now: datetime) -> datetime:
    with transaction.atomic():
        row = Node.objects.select_for_update(no_key=True).get(pk=node.pk)
        # Locked as well: a worker that claims it in this moment is waited for, and one that comes later sees the turn.
        rescue = queries.open_on(row, lock=True)
        if runs(row, now=now) or (rescue is not None and rescue.lease_until is not None and rescue.lease_until > now):
            raise Busy(f"another call about {row.name} is under way")
        if rescue is not None and rescue.lease_until is not None:  # run out: whoever had it may only be slow
            Rescue.objects.filter(pk=rescue.pk).update(lease_until=None, token=F("token") + 1)
        Node.objects.filter(pk=row.pk).update(taken_until=now + LEASE)
    return now + LEASE


def _mine(node: Node, until: datetime) -> QuerySet[Node]:
    return Node.objects.filter(pk=node.pk, taken_until=until)
