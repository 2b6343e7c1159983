"""uncordon: the node takes work again; one patch removes the portal's cordon, taints, label and mark (invariant 22)."""

from kcover import audit
from kcover.actions import uncordon as core
from kcover_portal.rescue.step import node_marks
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.outcomes import Done, Outcome


def run(context: Context) -> Outcome:
    """Reverts what the portal did; ``foreign`` (an operator's button) also lifts someone else's cordon."""
    return Done(node_marks.take_back(context, audit.Call.UNCORDON, foreign=context.step.args_as(core.Args).foreign))
