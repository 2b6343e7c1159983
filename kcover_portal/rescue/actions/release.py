"""release: the portal lets go of the node, whatever it had done to it, and touches nothing of anybody else's."""

from kcover_portal.rescue.actions import handing_over, marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import Done, Outcome
from kcover_portal.rescue.queries import standbys


def run(context: Context) -> Outcome:
    """Takes back cordon, taints, labels and mark in one patch; the portal's own clean-up only while it is uncordoned.

    A standby in service is a standby again: an operator's release is what ends its role.
    """
    if context.rescue.requested_by == "system":
        if context.kube.get_node(context.node.name).unschedulable:
            return Done("the node is cordoned after all: nothing was taken back")
        return Done(marking.take_back(context, "release"))
    assignment = standbys.standing_in(context.node)
    if assignment is None:
        return Done(marking.take_back(context, "release"))
    said = marking.take_back(context, "release", also=handing_over.given_back(assignment))
    handing_over.note_given_back(assignment, because=f"released by {context.rescue.requested_by}", now=context.now)
    return Done(f"{said}; it is a standby again, and no longer in for {assignment.origin.name}")
