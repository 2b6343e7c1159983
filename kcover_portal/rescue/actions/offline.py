"""offline: taint the drained node, hand it to another system and wait until that hands it back.

The taint and the state label are one patch, which is made before the call. They stay until the node is returned to
work, so nothing is scheduled on a machine that the other system has, whoever uncordons it. ``step.handover`` makes the
call and waits.
"""

from datetime import timedelta

from kcover import audit, reasons
from kcover.actions import offline as core, webhook
from kcover.nodes.node_stage import Stage
from kcover_portal.kube import port
from kcover_portal.rescue.step import handover, ladder, plan_steps
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Hold, Outcome

TAINT = port.Taint(*core.TAINT)


def run(context: Context) -> Outcome:
    """Takes the node offline once, then checks for the callback."""
    wait = timedelta(seconds=context.step.args_as(webhook.Args).wait_seconds or core.DEFAULT_WAIT.total_seconds())
    if context.step.progress_as(webhook.Progress).given_at is not None:
        return handover.handed_over(context, wait)
    node = node_marks.expect_isolated(context)
    spared = ladder.not_needed(context, node)
    if spared is not None:
        return spared
    if plan_steps.undrained(context.steps):
        return Hold(reasons.of("not_drained_not_offline"))
    if TAINT not in node.taints:
        try:
            node_marks.change(context, audit.Call.TAINT, state=Stage.REPAIR, taint=TAINT)
        except node_marks.ForeignTaint as found:
            return Hold(found.reason)
    return handover.hand_over(context, wait)
