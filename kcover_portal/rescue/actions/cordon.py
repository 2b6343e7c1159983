"""cordon: nothing new is scheduled on the node."""

from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import Done, Outcome


def run(context: Context) -> Outcome:
    """Cordons, unless somebody else had: then theirs stays theirs (invariant 18)."""
    marks = marking.change(context, "cordon", state="quarantined", cordon=True)
    return Done("it was cordoned by somebody else already" if marks.foreign_cordon else "cordoned")
