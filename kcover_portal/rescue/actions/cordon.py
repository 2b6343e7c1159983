"""cordon: keep new pods off the node."""

from collections.abc import Sequence

from kcover import audit, reasons
from kcover.actions import cordon as core
from kcover.nodes.node_stage import Stage
from kcover.plans import plan
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, Outcome

STATE = Stage.QUARANTINED


def run(context: Context) -> Outcome:
    """Cordons the node. A cordon that someone else had set stays theirs (invariant 18)."""
    marks = node_marks.change(context, audit.Call.CORDON, state=STATE, cordon=True)
    return Done(reasons.of("cordoned_already" if marks.foreign_cordon else "cordoned"))


def comes_first(steps: Sequence[plan.PlannedStep]) -> bool:
    """Returns whether the plan begins with a cordon, so that ``begin`` may begin it with the decision."""
    return steps[0].name == core.SPEC.name


def begin(context: Context) -> list[ledger.Draft]:
    """The ledger's entry before a cordon that follows its decision at once.

    Part of the decision's own transaction, which saves a commit between a fault and its node's cordon. The caller
    counts the call in the rescue's row.
    """
    context.begun = audit.Call.CORDON
    return [context.begin(audit.Call.CORDON, wanted=audit.NodePatch(state=STATE, cordon=True))]
