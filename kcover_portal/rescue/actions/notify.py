"""notify: people are told before anything is taken away.

The telling is another app's, downstream: the step is a waiting row, which that app finds, takes up and settles
(``services.telling``). Healing never depends on it: what cannot be delivered within ``WITHIN`` is gone on from.
"""

from datetime import datetime, timedelta

from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import Done, Outcome, Wait

WITHIN = timedelta(minutes=2)
POLL_SECONDS = 30.0  # it is woken when there is an answer; this is for answers that get lost


def run(context: Context) -> Outcome:
    """Asks once, by leaving the row, then waits for the answer."""
    if "asked_at" not in context.step.progress:
        context.remember(asked_at=context.now.isoformat())
    marking.expect_isolated(context)
    context.step.refresh_from_db(fields=["progress"])
    told = context.step.progress.get("told")
    if told:
        return Done(told["said"])
    until = datetime.fromisoformat(context.step.progress["asked_at"]) + WITHIN
    left = (until - context.now).total_seconds()
    if left <= 0:
        return Done(f"not delivered within {WITHIN.total_seconds() / 60:.0f} min: the plan goes on")
    return Wait(min(left, POLL_SECONDS), "waits until people are told")
