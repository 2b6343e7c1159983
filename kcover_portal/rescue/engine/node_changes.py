"""Reacts to changes of nodes that the watch shows: a waiting rescue checks its node at once, and drift is found."""

import functools
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from kcover.nodes import marks as core_marks
from kcover_portal.fleet.models import Node
from kcover_portal.fleet.services.node_rows import ChangedNode
from kcover_portal.incidents import services as incidents
from kcover_portal.lib import doorbell
from kcover_portal.lib.prepared import PreparedUpdate
from kcover_portal.rescue import queries
from kcover_portal.rescue.control import burn_ins
from kcover_portal.rescue.engine import probation_end, reconcile
from kcover_portal.rescue.models import Rescue

WRITTEN_COLUMNS = frozenset({"labels", "taints", "marks", "unschedulable"})  # of a node's row, that rescues change
CORDON_TAINT = "node.kubernetes.io/unschedulable"  # Kubernetes adds it to each cordoned node


def nudge_changed(changes: Sequence[ChangedNode], *, now: datetime) -> None:
    """Calls ``nudge`` for each changed node that matters to a rescue or to an open incident.

    The number of statements does not depend on the number of nodes, apart from those of ``nudge``.
    """
    if not changes:
        return
    nodes = [change.node for change in changes]
    probation_end.note_removed_by_hand(probation_end.without_taint(nodes), now=now)
    burn_ins.begin_new(nodes, now=now)
    rescues = queries.open_on_nodes(nodes)
    free = [node for node in nodes if node.pk not in rescues]
    drifted = incidents.decided_with_other_labels(free) | _uncordoned_with_marks(free)
    for change in changes:
        rescue = rescues.get(change.node.pk)
        matters = change.node.pk in drifted if rescue is None else _matters(change, rescue)
        if matters:
            nudge(change.node, rescue=rescue, now=now)


def nudge(node: Node, *, now: datetime, rescue: Rescue | None = None) -> None:
    """Handles a change of the node: a waiting rescue checks at once, and drift is found (invariant 20).

    ``rescue``: the node's open rescue, if the caller has read it.
    """
    rescue = rescue or queries.open_on(node)
    if rescue is not None:
        _wake(node, rescue, now=now)
        return
    incidents.redecide_if_labels_changed(node, now=now)
    marked = queries.marked_on(node)
    if marked is not None and node.in_cluster and _is_uncordoned(node, marked):
        reconcile.let_go(node, now=now)


def _wake(node: Node, rescue: Rescue, *, now: datetime) -> None:
    """Makes the node's open rescue due, if it waits; a held one only after somebody uncordoned its node."""
    taken_back = _is_uncordoned(node, rescue)
    if taken_back and rescue.state == Rescue.State.HELD and rescue.hold == Rescue.Hold.APPROVAL:
        reconcile.let_go(node, now=now)  # no approval is needed any more
        return
    woken = {"state": Rescue.State.RUNNING, "due_at": now}
    waiting = _WAITING.run(woken, rescue=rescue.pk, now=now)
    if waiting or (taken_back and _HELD.run(woken, rescue=rescue.pk, now=now)):
        doorbell.ring("rescue.run", rescue.pk)


def _not_due(rescue: int, now: datetime, state: str) -> QuerySet[Rescue]:
    return Rescue.objects.filter(pk=rescue, state=state).exclude(due_at__lte=now)


_WAITING = PreparedUpdate(functools.partial(_not_due, state=Rescue.State.WAITING), rescue=int, now=datetime)
_HELD = PreparedUpdate(functools.partial(_not_due, state=Rescue.State.HELD), rescue=int, now=datetime)


def _matters(change: ChangedNode, rescue: Rescue) -> bool:
    """Returns whether ``nudge`` may have to wake the node's open rescue.

    A running rescue reads the node itself. While another system has the node, nothing but its callback counts.
    """
    if rescue.state == Rescue.State.WAITING:
        return rescue.hold != Rescue.Hold.EXTERNAL and not _is_own_write(change, rescue)
    return rescue.state == Rescue.State.HELD and _is_uncordoned(change.node, rescue)


def _is_own_write(change: ChangedNode, rescue: Rescue) -> bool:
    """Returns whether the change shows only what the rescue has written to its node, so that its step knows it."""
    node, marks = change.node, core_marks.read(rescue.marks)
    if marks is None or node.marks != rescue.marks or not change.before.keys() <= WRITTEN_COLUMNS:
        return False
    if node.unschedulable != (marks.cordon or marks.foreign_cordon):
        return False
    before = {"labels": node.labels, "taints": node.taints, **change.before}
    return (
        _foreign_labels(before["labels"], marks) == _foreign_labels(node.labels, marks)
        and marks.given.items() <= node.labels.items()
        and _foreign_taints(before["taints"], marks) == _foreign_taints(node.taints, marks)
    )


def _foreign_labels(labels: Mapping[str, str], marks: core_marks.Marks) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in marks.labels}


def _foreign_taints(taints: Sequence[Mapping[str, Any]], marks: core_marks.Marks) -> set[tuple[str, str, str]]:
    found = {(taint["key"], taint["value"], taint["effect"]) for taint in taints if taint["key"] != CORDON_TAINT}
    return found - set(marks.taints)


def _uncordoned_with_marks(nodes: Collection[Node]) -> set[int]:
    """The nodes (by key) that carry the marks of a rescue and that someone uncordoned."""
    shown = [node.pk for node in nodes if _shows_uncordon(node)]
    rescues = Rescue.objects.filter(node__in=shown).exclude(marks={})
    return set(rescues.values_list("node_id", flat=True)) if shown else set()


def _is_uncordoned(node: Node, rescue: Rescue) -> bool:
    """Returns whether the rescue cordoned the node and the watch shows it schedulable since."""
    # Check both marks, because the row may be older than the cordon and then lack them.
    return core_marks.read(rescue.marks) is not None and _shows_uncordon(node)


def _shows_uncordon(node: Node) -> bool:
    """Returns whether the node carries the mark of a cordon and is schedulable."""
    marks = core_marks.read(node.marks)
    if marks is None or not node.in_cluster or node.unschedulable:
        return False
    return marks.cordon or marks.foreign_cordon
