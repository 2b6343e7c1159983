"""The marks of a probation: put on the node in the patch that returns it, and removed in one patch.

Each patch is computed from the live node and from the mark on it.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from django.db import transaction

from kcover import audit, reasons
from kcover.decisions import standby
from kcover.nodes import marks as core_marks, probation_mark
from kcover.nodes.probation_mark import ProbationMark
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.rescue.models import Probation
from kcover_portal.rescue.queries import probations

STATE = core_marks.STATE_LABEL
OWN_STATES = (standby.RESERVED, probation_mark.STATE)  # values of the state label that end by themselves
TAINT = port.Taint(*probation_mark.TAINT)


@dataclass(slots=True)
class Found:
    """The mark that a node has after ``put_on``."""

    _mark: ProbationMark | None = None

    def keep(self, mark: ProbationMark) -> None:
        """Keeps the mark of the last look at the node."""
        self._mark = mark

    @property
    def mark(self) -> ProbationMark:
        """The mark. Raises LookupError before the patch."""
        if self._mark is None:
            raise LookupError("the node was not patched yet")
        return self._mark


def on(node: port.Node) -> ProbationMark | None:
    """The mark on the node; None if it is on no probation."""
    return probation_mark.parse(node.annotations.get(probation_mark.ANNOTATION, ""))


def put_on(row: Probation, kept: Found) -> port.DesiredChange:
    """The change that begins the probation. ``kept`` gets the mark that the node then has.

    The live node alone says whether the taint is to be added, and the rows alone say whose it is: a kubelet may write a
    mark, but may not remove taints. The row gets the mark before the patch, so that it knows even without an answer.
    """

    def wanted(node: port.Node) -> port.NodeChange:
        found = on(node)
        stored = probation_mark.read(row.marks)
        if stored is not None and found is not None and found.probation == row.pk and carries_taint(node):
            kept.keep(stored)  # an earlier call had its effect
            return port.NodeChange()
        mark = _mark(row, node, before=found)
        if mark.to_json() != row.marks:
            row.marks = mark.to_json()
            Probation.objects.filter(pk=row.pk, began_at=None, ended_at=None).update(marks=row.marks)
        kept.keep(mark)
        return port.NodeChange(
            labels={probation_mark.LABEL: probation_mark.LABEL_VALUE, STATE: probation_mark.STATE},
            annotations={probation_mark.ANNOTATION: mark.render()},
            add_taints=() if carries_taint(node) else (TAINT,),
        )

    return wanted


def taken_off(node: port.Node, *, row: Probation | None = None) -> port.NodeChange:
    """The change that removes what a probation added. ``row``: only that of this probation, even without its mark.

    The row says what was added, as the node's kubelet may write the mark. Without a row, or with one that has forgotten
    it, the mark does.
    """
    mark, known = on(node), probation_mark.read(row.marks) if row is not None else None
    if row is not None and mark is not None and mark.probation != row.pk and _is_later(mark.probation, row):
        return port.NodeChange()
    mark = known or mark
    if mark is None or (row is not None and mark.probation != row.pk):
        return port.NodeChange()
    labels: dict[str, str | None] = {}
    if node.labels.get(probation_mark.LABEL) == probation_mark.LABEL_VALUE:
        labels[probation_mark.LABEL] = mark.label_before
    if node.labels.get(STATE) == probation_mark.STATE:
        labels[STATE] = mark.state_before
    return port.NodeChange(
        labels=labels,
        annotations={probation_mark.ANNOTATION: None},
        remove_taints=(TAINT,) if mark.tainted else (),
    )


def _is_later(number: int, row: Probation) -> bool:
    """Returns whether the node has the marks of another probation, which goes on."""
    return 0 < number < 2**63 and Probation.objects.filter(pk=number, node=row.node_id, ended_at=None).exists()


def carries_taint(node: port.Node) -> bool:
    """Returns whether ordinary work is kept from the node by a taint of a probation, whoever added it."""
    return any((taint.key, taint.effect) == (TAINT.key, TAINT.effect) for taint in node.taints)


def _mark(row: Probation, node: port.Node, *, before: ProbationMark | None) -> ProbationMark:
    """The mark of a new probation. It takes over what an earlier one, or an earlier call, added."""
    tainted = not carries_taint(node) or _added_taint(row.node, uid=node.uid, shown=before)
    if before is not None:
        return replace(before, probation=row.pk, rescue=row.rescue_id, until=row.until, tainted=tainted)
    marks = core_marks.read(core_marks.parse(node.annotations.get(core_marks.ANNOTATION, "")))
    state = node.labels.get(STATE)
    if marks is not None and STATE in marks.labels:
        state = marks.labels[STATE]
    return ProbationMark(
        probation=row.pk,
        rescue=row.rescue_id,
        until=row.until,
        tainted=tainted,
        label_before=node.labels.get(probation_mark.LABEL),
        state_before=None if state in OWN_STATES else state,
    )


def _added_taint(node: Node, *, uid: str, shown: ProbationMark | None) -> bool:
    """Returns whether a row states that the portal added the taint that the node has.

    A row of which the patch has no answer states what was to be added. Only together with its mark it was.
    """
    for row in probations.with_marks(node, uid=uid):
        stated = probation_mark.read(row.marks)
        answered = row.began_at is not None or (shown is not None and shown.probation == row.pk)
        if stated is not None and stated.tainted and answered:
            return True
    return False


def note_began(row: Probation, mark: ProbationMark, *, actor: str, now: datetime) -> None:
    """Writes that the node is on the probation, which ends an earlier one. Part of the caller's transaction.

    Its end is that of the row: the node's kubelet may write another one into the mark.
    """
    mark = replace(mark, until=row.until)
    Node.objects.select_for_update(no_key=True).get(pk=row.node_id)
    for earlier in probations.going_on().filter(node=row.node_id).exclude(pk=row.pk):
        note_ended(earlier, because=reasons.of("probation_renewed", rescue=str(row.rescue_id)), actor=actor, now=now)
    columns = {"began_at": now, "until": mark.until, "due_at": mark.until, "marks": mark.to_json()}
    if not Probation.objects.filter(pk=row.pk, began_at=None, ended_at=None).update(**columns):
        return
    Node.objects.filter(pk=row.node_id).update(probation_until=mark.until)
    act = audit.ProbationBegan(
        rescue=row.rescue_id, node=row.node.name, probation=row.pk, until=mark.until, because=row.basis
    )
    ledger.record(row.node.cluster.name, act, actor=actor, now=now)
    doorbell.publish("node", row.node_id, cluster=row.node.cluster.name)


def end_early(row: Probation, *, because: reasons.Reason, now: datetime) -> bool:
    """Lets a worker end the probation at once. False if it has ended, or is to end early already."""
    going_on = Probation.objects.filter(pk=row.pk, ended_at=None, end_because={})
    if not going_on.update(end_because=because.to_json(), due_at=now):
        return False
    doorbell.ring("rescue.end_probation", row.pk)
    return True


@transaction.atomic
def note_ended(row: Probation, *, because: reasons.Reason, actor: str, now: datetime) -> bool:
    """Closes the row of a probation whose marks are gone. False if it was closed before."""
    Node.objects.select_for_update(no_key=True).get(pk=row.node_id)
    open_row = Probation.objects.filter(pk=row.pk, ended_at=None)
    if not open_row.update(ended_at=now, due_at=None, end_because=because.to_json()):
        return False
    if probations.on_node(row.node) is None:
        Node.objects.filter(pk=row.node_id).update(probation_until=None)
    act = audit.ProbationEnded(rescue=row.rescue_id, node=row.node.name, probation=row.pk, because=because)
    ledger.record(row.node.cluster.name, act, actor=actor, now=now)
    doorbell.publish("node", row.node_id, cluster=row.node.cluster.name)
    return True
