"""label: says something about the node to whoever selects by it; takes no work away and keeps none away by itself."""

from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import Done, Outcome


def run(context: Context) -> Outcome:
    """Sets the label of the plan; the value from before is in the node's mark and comes back with the rest."""
    key, value = context.step.args["key"], context.step.args["value"]
    marking.change(context, "label", state=None, label=(key, value))
    return Done(f"labelled {key}={value}")
