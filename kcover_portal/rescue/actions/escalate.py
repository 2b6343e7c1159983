"""escalate: the portal has done its part, a person must do the rest; the node stays as it is."""

from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import Done, Outcome


def run(context: Context) -> Outcome:
    """Says what is asked of people; the engine marks the rescue as theirs."""
    return Done(str(context.step.args["message"]))
