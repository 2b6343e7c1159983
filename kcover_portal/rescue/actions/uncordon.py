"""uncordon: the node takes work again; the portal's cordon, taints, label and mark go in one patch (invariant 22)."""

from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import Done, Outcome


def run(context: Context) -> Outcome:
    """Takes back what the portal did; ``foreign`` (an operator's button) also lifts somebody else's cordon."""
    return Done(marking.take_back(context, "uncordon", foreign=bool(context.step.args.get("foreign"))))
