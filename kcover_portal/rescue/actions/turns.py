"""Turns: at most one act is in flight on a node, over all workers (invariant 8).

The node's open rescue acts while its worker holds the lease. Who acts on the node outside of it takes a turn for that
one call: a withdrawal of what an ended rescue asked for, and whatever promises a standby, puts it into service or gives
it back. Neither begins while the other is at it. A rescue that is ended under its worker leaves the node's turn to the
call that may be under way. The labels that tell of a node's health are no act: nothing else writes them.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F

from kcover_portal import doorbell
from kcover_portal.fleet.models import Node
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Rescue

LEASE = timedelta(seconds=30)  # longer than any single call may take (25 s); renewed before each write
MUCH_OF_IT = timedelta(seconds=3)


class Busy(Exception):
    """Somebody else's call about this node may be under way."""


class Turn:
    """A node's turn while it is taken."""

    def __init__(self, node: Node, *, now: datetime) -> None:
        self._node, self._by = node, uuid.uuid4().hex
        self._until = _take(node, by=self._by, now=now, again=False)

    def stay(self, *, now: datetime) -> None:
        """Before the next call of one write: makes the turn cover it.

        Raises Busy where the turn ran out, and the node's own rescue is at work or another turn was taken since; then
        that call must not be made.
        """
        if self._until - now < LEASE - MUCH_OF_IT:
            self._until = _take(self._node, by=self._by, now=now, again=True)

    def give_back(self, *, now: datetime) -> None:
        """The call is over."""
        _give_back(self._node, by=self._by, now=now)


@contextmanager
def taken(node: Node, *, clock: Callable[[], datetime]) -> Iterator[Turn]:
    """The node's turn for one call, outside of its own rescue. Raises Busy. Where the worker dies it runs out."""
    turn = Turn(node, now=clock())
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
    row = Rescue.objects.select_for_update(no_key=True, of=("self",)).get(pk=rescue.pk)
    if row.lease_until is not None and row.lease_until > now:
        Node.objects.filter(pk=rescue.node_id).update(taken_by=_worker_of(row), taken_until=row.lease_until)


def step_aside(rescue: Rescue, *, now: datetime) -> None:
    """The worker that lost the rescue, and knows it by now, has no call under way: gives back what was left to it."""
    _give_back(rescue.node, by=_worker_of(rescue), now=now)


def _worker_of(rescue: Rescue) -> str:
    """Whoever works, or worked, on the rescue with this token."""
    return f"rescue {rescue.pk} token {rescue.token}"


def _take(node: Node, *, by: str, now: datetime, again: bool) -> datetime:
    """Until when it is taken; ``again``: it was taken before, and no other turn may have been since. Raises Busy."""
    with transaction.atomic():
        row = Node.objects.select_for_update(no_key=True).get(pk=node.pk)
        # Locked as well: a worker that claims it in this moment is waited for, and one that comes later sees the turn.
        rescue = queries.open_on(row, lock=True)
        if again and row.taken_by != by:
            raise Busy(f"the turn on {row.name} ran out")
        acts = rescue is not None and rescue.lease_until is not None and rescue.lease_until > now
        if acts or (runs(row, now=now) and row.taken_by != by):
            raise Busy(f"another call about {row.name} is under way")
        if rescue is not None and rescue.lease_until is not None:  # run out: whoever had it may only be slow
            Rescue.objects.filter(pk=rescue.pk).update(lease_until=None, token=F("token") + 1)
        Node.objects.filter(pk=row.pk).update(taken_by=by, taken_until=now + LEASE)
    return now + LEASE


def _give_back(node: Node, *, by: str, now: datetime) -> None:
    """Gives the turn back and wakes the rescue that waited; nothing where it is over, and somebody else's."""
    if not Node.objects.filter(pk=node.pk, taken_by=by).update(taken_by="", taken_until=None):
        return
    due = Rescue.objects.filter(node=node, state__in=("waiting", "running"), due_at__lte=now)
    for rescue in due.values_list("pk", flat=True):
        doorbell.ring("rescue.run", rescue)
