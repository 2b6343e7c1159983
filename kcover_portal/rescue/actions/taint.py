"""taint: keeps new pods away that do not tolerate it; running pods stay (as Konduktor does).

With the effect NoExecute they do not, and then the guards are asked as before a drain.
"""

from kcover import plan
from kcover_portal.kube import port
from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import Done, Hold, Outcome


def run(context: Context) -> Outcome:
    """Adds the taint of the plan; where another's is in its place, a person is asked."""
    args = context.step.args
    taint = port.Taint(args["key"], args["value"], args["effect"])
    try:
        marking.change(context, "taint", state="quarantined", taint=taint, destructive=plan.takes_away("taint", args))
    except marking.ForeignTaint as found:
        return Hold(f"{found}: nothing was changed")
    return Done(f"tainted {taint.key}={taint.value}:{taint.effect}")
