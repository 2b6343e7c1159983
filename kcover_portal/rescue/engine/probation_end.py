"""End probations: remove label, taint and mark in one patch, without a rescue, under the node lock.

A probation is a row with a due date, as the withdrawal of a request is. The row is written before the patch that
begins the probation and closed after the patch that ends it, so that no crash leaves a taint behind.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction

from kcover import audit, reasons
from kcover.nodes import probation_mark
from kcover.plans import lifecycle
from kcover_portal.config import log_context
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.actions.uncordon import PLANNED_LOOK
from kcover_portal.rescue.models import Probation, Rescue
from kcover_portal.rescue.queries import probations
from kcover_portal.rescue.step import call_answers, errors, lease, node_lock
from kcover_portal.rescue.step.errors import AnotherMachine
from kcover_portal.rescue.step.marks import probation_marks

log = logging.getLogger(__name__)

ACTOR: Final = "system"
HOLD_POLL: Final = timedelta(seconds=30)  # between looks while nothing may be written
LOCK_POLL: Final = timedelta(seconds=1)  # between attempts while another call about the node is under way
RETRY_AFTER: Final = timedelta(seconds=30)  # after an error of the API server


class _Silent(Exception):
    """Nothing may be written: the mode forbids it, or another system has the node (invariant 10)."""


def end(pk: int, *, clock: Callable[[], datetime]) -> None:
    """Ends a probation that is due. Does nothing if it is not due or another worker has it."""
    now = clock()
    claimed = Probation.objects.filter(pk=pk, ended_at=None, due_at__lte=now)
    if not claimed.update(due_at=now + lease.TIME):
        return
    row = Probation.objects.select_related("node__cluster", "rescue").get(pk=pk)
    if row.began_at is None and row.rescue.state in lifecycle.OPEN_RESCUE:
        _look_again(row, after=PLANNED_LOOK, now=now)  # its rescue may still return the node
        return
    with log_context.bound(cluster=row.node.cluster.name, node=row.node.name):
        _end_due(row, clock=clock)


def _end_due(row: Probation, *, clock: Callable[[], datetime]) -> None:
    try:
        with node_lock.acquire(row.node, clock=clock) as lock:
            because = _end(row, lock, clock=clock)
    except _Silent:
        _look_again(row, after=HOLD_POLL, now=clock())
        return
    except node_lock.Busy as other:
        log.info("%s: the probation of %s is not ended yet: %s", row.node.cluster.name, row.node.name, other)
        _look_again(row, after=LOCK_POLL, now=clock())
        return
    except port.KubeError as error:
        log.warning("%s: the probation of %s is not ended yet: %s", row.node.cluster.name, row.node.name, error)
        _look_again(row, after=RETRY_AFTER, now=clock())
        return
    if because is not None:
        probation_marks.note_ended(row, because=because, actor=ACTOR, now=clock())


def note_removed_by_hand(nodes: Collection[Node], *, now: datetime) -> None:
    """Ends the probations whose taint someone removed. ``nodes``: on probation, and the watch shows no taint."""
    if not nodes:
        return
    for row in probations.going_on().filter(node__in=nodes):
        if fleet.mode_of(row.node.cluster)[0] in fleet.MODES_WITHOUT_WRITES:
            continue
        with log_context.bound(cluster=row.node.cluster.name, node=row.node.name):
            _note_if_removed(row, now=now)


def _note_if_removed(row: Probation, *, now: datetime) -> None:
    try:
        live = fleet.connect(row.node.cluster).get_node(row.node.name)  # because the watch may only be late
    except port.KubeError as error:
        log.info("%s: its probation was not reconciled: %s", row.node.name, error)
        return
    mark = probation_mark.read(row.marks)
    if live.uid == row.node_uid and mark is not None and mark.tainted and not probation_marks.carries_taint(live):
        probation_marks.end_early(row, because=reasons.of("probation_removed_by_hand", node=live.name), now=now)


def without_taint(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that are on probation and that the watch shows without the taint."""
    return [node for node in nodes if node.probation_until is not None and node.in_cluster and not _tainted(node)]


def _tainted(node: Node) -> bool:
    key, _, effect = probation_mark.TAINT
    return any((taint["key"], taint["effect"]) == (key, effect) for taint in node.taints)


def _end(row: Probation, lock: node_lock.NodeLock, *, clock: Callable[[], datetime]) -> reasons.Reason | None:
    """Removes the marks under the node's lock. Returns why the probation has ended; None if it goes on.

    Raises Busy, _Silent and the port's errors.
    """
    kube = fleet.connect(row.node.cluster)
    try:
        live = kube.get_node(row.node.name)
    except port.NotFound:
        return reasons.of("node_gone")
    if row.node_uid and live.uid != row.node_uid:
        return _other_machine(row, live)
    mark = probation_marks.on(live)
    if row.began_at is None:
        if mark is None or mark.probation != row.pk:
            return reasons.of("probation_never_began")
        with transaction.atomic():
            stated = probation_mark.read(row.marks) or mark
            probation_marks.note_began(row, stated, actor=ACTOR, now=clock())
        return None
    because = _why(row, now=clock())
    if because is None:
        return None
    return _take_off(row, lock, kube, because=because, clock=clock)


def _why(row: Probation, *, now: datetime) -> reasons.Reason | None:
    asked = reasons.kept(row.end_because)
    return asked or (reasons.of("probation_over") if now >= row.until else None)


def _take_off(
    row: Probation,
    lock: node_lock.NodeLock,
    kube: port.Cluster,
    *,
    because: reasons.Reason,
    clock: Callable[[], datetime],
) -> reasons.Reason:
    """One patch, with its entries in the audit log.

    The row forgets the marks before the patch: if they are gone from the node afterwards, what is there is somebody
    else's, also for a worker that repeats the call after a crash.
    """
    steps = row.rescue.steps.filter(name="uncordon").order_by("-index")
    step = steps.values_list("index", flat=True).first()
    call: dict[str, Any] = {
        "call": audit.Call.END_PROBATION,
        "target": f"node {row.node.name}",
        "node": row.node.name,
        "rescue": row.rescue_id,
        "step": step,
        "name": "uncordon",
    }

    def note(act: audit.ClusterCall) -> None:
        ledger.record(row.node.cluster.name, act, actor=ACTOR, now=clock())

    def expect(node: port.Node) -> None:
        lock.renew(now=clock())
        if row.node_uid and node.uid != row.node_uid:
            raise AnotherMachine(_other_machine(row, node))

    with transaction.atomic():
        lock.renew(now=clock())
        away = Rescue.objects.filter(node=row.node, hold=Rescue.Hold.EXTERNAL, state__in=lifecycle.OPEN_RESCUE)
        if fleet.mode_now(row.node.cluster)[0] in fleet.MODES_WITHOUT_WRITES or away.exists():
            raise _Silent
        note(audit.ClusterCallBegun(wanted=audit.ProbationChange(probation=row.pk, because=because), **call))
        _keep_marks(row, {})
    try:
        changed = kube.apply_node(row.node.name, lambda node: probation_marks.taken_off(node, row=row), expect=expect)
    except (port.KubeError, node_lock.Busy, AnotherMachine) as error:
        with transaction.atomic():
            note(audit.ClusterCallFailed(because=errors.reason_of(error), held_back=False, **call))
            if not getattr(error, "ambiguous", False):  # it had no effect
                _keep_marks(row, row.marks)
        if isinstance(error, AnotherMachine):
            return error.reason
        if isinstance(error, port.NotFound):
            return reasons.of("node_gone")
        raise
    note(audit.ClusterCallDone(answer=call_answers.of(changed), **call))
    return because


def _keep_marks(row: Probation, marks: Mapping[str, Any]) -> None:
    Probation.objects.filter(pk=row.pk, ended_at=None).update(marks=marks)


def _other_machine(row: Probation, live: port.Node) -> reasons.Reason:
    return reasons.of("another_machine", node=live.name, uid=live.uid, expected=row.node_uid)


def _look_again(row: Probation, *, after: timedelta, now: datetime) -> None:
    Probation.objects.filter(pk=row.pk, ended_at=None).update(due_at=now + after)
