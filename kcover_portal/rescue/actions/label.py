"""label: set a label for whatever selects nodes by it. By itself the label neither removes work nor keeps work away."""

from kcover import audit, reasons
from kcover.actions import label as core
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, Outcome


def run(context: Context) -> Outcome:
    """Sets the label of the plan; the node's mark keeps the earlier value, which is restored with the rest."""
    args = context.step.args_as(core.Args)
    node_marks.change(context, audit.Call.LABEL, state=None, label=(args.key, args.value))
    return Done(reasons.of("labelled", label=f"{args.key}={args.value}"))
