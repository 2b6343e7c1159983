"""release: remove everything that the portal did to the node, and nothing of anyone else's.

A person may have the taint of one known system removed, too, when they leave that system.
"""

from dataclasses import replace

from kcover import audit, reasons
from kcover.actions import release as core
from kcover.nodes import foreign_taints, marks as core_marks
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
from kcover_portal.rescue.models import Probation, Rescue
from kcover_portal.rescue.queries import probations, standbys
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import cordons, node_marks, probation_marks, standby_marks
from kcover_portal.rescue.step.outcomes import Done, Failed, Outcome


def run(context: Context) -> Outcome:
    """Removes cordon, taints, labels and mark in one patch; the portal's own clean-up does so only while uncordoned,
    and only where the cordon is all that it would take back.

    A standby in service becomes a standby again: an operator's release ends its role. It ends a probation as well, and
    a person's release removes the readiness taint.
    """
    if context.rescue.requester_kind == Rescue.Requester.SYSTEM:
        if context.kube.get_node(context.node.name).unschedulable:
            return Done(reasons.of("release_still_cordoned"))
        if cordons.keeps_more(context):
            return Failed(cordons.yield_only(context, audit.Call.RELEASE))
        return node_marks.take_back(context, audit.Call.RELEASE)
    because = reasons.of("released_by", by=context.rescue.requested_by)
    assignment = standbys.standing_in(context.node)
    also = standby_marks.given_back(assignment) if assignment is not None else _nothing
    by_person = context.rescue.requester_kind == Rescue.Requester.PERSON
    also = _with_probation(context, also)
    taint = foreign_taints.KNOWN.get(context.step.args_as(core.Args).taints_of) if by_person else None
    found: list[port.Taint] = []
    if taint is not None:
        also = _without(port.Taint(*taint), also, found)
    ended = node_marks.take_back(context, audit.Call.RELEASE, first_work=by_person, also=also)
    removed = ended.reason
    for one in found:
        shown = reasons.of("change_taint", taint=f"{one.key}={one.value}:{one.effect}")
        removed = reasons.both(removed, reasons.of("marks_removed", changes=(shown,)))
    _end_probation(context, because)
    if assignment is None:
        return replace(ended, reason=removed)
    standby_marks.note_given_back(assignment, because=because, now=context.now)
    return replace(ended, reason=reasons.both(removed, reasons.of("standby_again", origin=assignment.origin.name)))


def _without(taint: port.Taint, also: port.DesiredChange, found: list[port.Taint]) -> port.DesiredChange:
    """The change together with the removal of another system's taint, which is in ``found`` if the node has it."""

    def wanted(node: port.Node) -> port.NodeChange:
        more = also(node)
        own = core_marks.read(core_marks.parse(node.annotations.get(core_marks.ANNOTATION, "")))
        is_own = own is not None and (taint.key, taint.value, taint.effect) in own.taints
        found[:] = [] if is_own else [one for one in node.taints if one == taint]
        return replace(more, remove_taints=(*more.remove_taints, *found))

    return wanted


def _nothing(_node: port.Node) -> port.NodeChange:
    return port.NodeChange()


def _with_probation(context: Context, also: port.DesiredChange) -> port.DesiredChange:
    """The change together with the end of the probation that the node is on."""
    row = probations.on_node(context.node)

    def wanted(node: port.Node) -> port.NodeChange:
        more, ended = also(node), port.NodeChange()
        if row is not None and row.node_uid in ("", node.uid):
            ended = probation_marks.taken_off(node, row=row)
        if ended == port.NodeChange():  # a later probation, of which the row has not begun, or one without a row
            ended = probation_marks.taken_off(node, row=_unbegun(context.node, node))
        return replace(
            more,
            labels={**ended.labels, **more.labels},
            annotations={**ended.annotations, **more.annotations},
            remove_taints=(*more.remove_taints, *ended.remove_taints),
        )

    return wanted


def _unbegun(row: Node, node: port.Node) -> Probation | None:
    """The row of the probation that the node's mark names; None if it was lost, with a restored database."""
    mark = probation_marks.on(node)
    rows = probations.with_marks(row, uid=node.uid) if mark is not None else ()
    return next((one for one in rows if mark is not None and one.pk == mark.probation), None)


def _end_probation(context: Context, because: reasons.Reason) -> None:
    row = probations.on_node(context.node)
    if row is not None:
        probation_marks.note_ended(row, because=because, actor=context.rescue.requested_by, now=context.now)
