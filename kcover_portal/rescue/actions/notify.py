"""notify: notify people before work is taken away.

The notify app, downstream, delivers the message: the step is a waiting row that this app finds and settles
(``control.notify_steps``). A rescue never depends on it: after ``TIME_LIMIT`` the plan continues without delivery.
"""

from datetime import timedelta

from kcover import reasons
from kcover.actions import notify as core
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, Outcome, Wait

TIME_LIMIT = timedelta(minutes=2)
POLL_SECONDS = 30.0  # the answer wakes the step; polling covers answers that get lost


def run(context: Context) -> Outcome:
    """Requests the notification once, by the row itself, then waits for the answer."""
    if context.step.progress_as(core.Progress).requested_at is None:
        context.remember(requested_at=context.now)
    node_marks.expect_isolated(context)
    context.step.refresh_from_db(fields=["progress"])
    progress = context.step.progress_as(core.Progress)
    if progress.result is not None:
        return Done(reasons.from_json(progress.result["because"]))
    until = (progress.requested_at or context.now) + TIME_LIMIT
    left = (until - context.now).total_seconds()
    if left <= 0:
        return Done(reasons.of("notify_timeout", minutes=int(TIME_LIMIT.total_seconds() / 60)))
    return Wait(min(left, POLL_SECONDS), reasons.of("notify_waiting"))
