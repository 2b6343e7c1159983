"""release: remove everything that the portal did to the node, and nothing of anyone else's."""

from kcover import audit, reasons
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import standbys
from kcover_portal.rescue.step import node_marks, standby_marks
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.outcomes import Done, Outcome


def run(context: Context) -> Outcome:
    """Removes cordon, taints, labels and mark in one patch; the portal's own clean-up does so only while uncordoned.

    A standby in service becomes a standby again: an operator's release ends its role.
    """
    if context.rescue.requester_kind == Rescue.Requester.SYSTEM:
        if context.kube.get_node(context.node.name).unschedulable:
            return Done(reasons.of("release_still_cordoned"))
        return Done(node_marks.take_back(context, audit.Call.RELEASE))
    assignment = standbys.standing_in(context.node)
    if assignment is None:
        return Done(node_marks.take_back(context, audit.Call.RELEASE))
    removed = node_marks.take_back(context, audit.Call.RELEASE, also=standby_marks.given_back(assignment))
    standby_marks.note_given_back(
        assignment, because=reasons.of("released_by", by=context.rescue.requested_by), now=context.now
    )
    return Done(reasons.both(removed, reasons.of("standby_again", origin=assignment.origin.name)))
