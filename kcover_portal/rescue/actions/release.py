"""release: the portal lets go of the node, whatever it had done to it, and touches nothing of anybody else's."""

from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import Done, Outcome


def run(context: Context) -> Outcome:
    """Takes back cordon, taints, label and mark in one patch; the portal's own clean-up only while it is uncordoned."""
    if context.rescue.requested_by == "system" and context.kube.get_node(context.node.name).unschedulable:
        return Done("the node is cordoned after all: nothing was taken back")
    return Done(marking.take_back(context, "release"))
