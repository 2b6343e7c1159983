"""ready: wait until the cluster reports the node Ready under another boot ID than the one that was rebooted."""

from datetime import timedelta

from kcover import reasons
from kcover_portal.rescue.step import plan_steps
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import node_marks, out_of_service
from kcover_portal.rescue.step.outcomes import Done, Hold, Outcome, Poll

POLL_SECONDS = 1.0


def run(context: Context) -> Outcome:
    """Waits for Ready, bounded by the cluster's ``ready_within``."""
    node = node_marks.expect_isolated(context)
    out_of_service.take_back(context, node)  # left on the node if an operator skipped the step that set it
    old = plan_steps.boot_to_end(context.steps) or None
    if node.ready and node.boot_id and node.boot_id != old:
        context.note(boot_id=node.boot_id)
        return Done(reasons.of("ready_new_boot"))
    waited = context.now - (context.step.started_at or context.now)
    if waited > timedelta(seconds=context.cluster.ready_within):
        return Hold(reasons.of("ready_timeout", seconds=context.cluster.ready_within))
    return Poll(POLL_SECONDS, reasons.of("booted_not_ready" if node.boot_id != old else "not_back_yet"))
