"""webhook: notify another system, or hand it the node until it calls back.

Without a wait, the system is only notified: after a few attempts the plan continues, whatever their result.
``step.handover`` hands the node over.
"""

from datetime import timedelta

from kcover import reasons
from kcover.actions import webhook as core
from kcover_portal.rescue.step import handover, recheck_guards
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.handover import BACKOFF_SECONDS
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, Outcome, Wait


def run(context: Context) -> Outcome:
    """Makes the call, or checks for the callback."""
    wait = context.step.args_as(core.Args).wait_seconds
    if wait is None:
        return _notify_system(context)
    if context.step.progress_as(core.Progress).given_at is not None:
        return handover.handed_over(context, timedelta(seconds=wait))
    return handover.hand_over(context, timedelta(seconds=wait))


def _notify_system(context: Context) -> Outcome:
    """One attempt to notify. A repeated notification does no harm, because the delivery has the same name."""
    node_marks.expect_isolated(context)
    context.check_guards(destructive=False)
    recheck_guards.storm(context.rescue, now=context.now)
    tries = context.step.progress_as(core.Progress).tries
    if tries > len(BACKOFF_SECONDS):
        return Done(handover.named("webhook_not_delivered", context))
    context.remember(tries=tries + 1)
    reply = handover.call(context, until=None)
    if reply.taken:
        return Done(handover.named("webhook_delivered", context))
    if (reply.later or reply.unclear) and tries < len(BACKOFF_SECONDS):
        return Wait(BACKOFF_SECONDS[tries], reply.reason)
    return Done(reasons.both(handover.named("webhook_not_delivered", context), reply.reason))
