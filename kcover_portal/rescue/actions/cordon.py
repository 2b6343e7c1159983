"""cordon: nothing new is scheduled on the node."""

from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import Done, Outcome

STATE = "quarantined"


def run(context: Context) -> Outcome:
    """Cordons, unless somebody else had: then theirs stays theirs (invariant 18)."""
    marks = marking.change(context, "cordon", state=STATE, cordon=True)
    return Done("it was cordoned by somebody else already" if marks.foreign_cordon else "cordoned")


def begin(context: Context) -> list[ledger.Draft]:
    """What the ledger says before a cordon that follows its decision at once, to be appended in the decision's own
    transaction: one commit less between a fault and its node's cordon. Nothing for another first step."""
    if context.step.name != "cordon":
        return []
    context.begun = "cordon"
    return [context.begin("cordon", data={"state": STATE, "cordon": True})]
