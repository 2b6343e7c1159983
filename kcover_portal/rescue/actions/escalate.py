"""escalate: a person must take over; the node stays as it is."""

from kcover import reasons
from kcover.actions import escalate as core
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.outcomes import Done, Outcome


def run(context: Context) -> Outcome:
    """States what people are asked to do; the engine marks the rescue as theirs."""
    return Done(reasons.of("escalated", message=context.step.args_as(core.Args).message))
