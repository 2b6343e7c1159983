"""mark_maintenance: labels the node for the team that maintains the machines."""

from kcover import audit, reasons
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, Outcome
from tests.portal.toy_action import spec

LABEL = "example.com/maintenance"


def run(context: Context) -> Outcome:
    """Sets the label; the value from before is in the node's mark and comes back with the rest."""
    args = context.step.args_as(spec.Args)
    if context.step.progress_as(spec.Progress).marked_at is None:
        context.remember(marked_at=context.now)
    node_marks.change(context, audit.Call.LABEL, state=None, label=(LABEL, args.message))
    return Done(reasons.of("labelled", label=f"{LABEL}={args.message}"))
