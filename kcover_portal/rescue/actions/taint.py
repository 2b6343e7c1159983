"""taint: keep away new pods that do not tolerate the taint; running pods stay (as in Konduktor).

With the effect NoExecute running pods go too, so the guards are evaluated as before a drain.
"""

from kcover import audit, reasons
from kcover.actions import taint as core
from kcover.nodes import readiness_taint
from kcover.nodes.node_stage import Stage
from kcover_portal.kube import port
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, Hold, Outcome


def run(context: Context) -> Outcome:
    """Adds the taint of the plan; if someone else's taint is in the way, a person is asked."""
    args = context.step.args_as(core.Args)
    taint = port.Taint(args.key, args.value, args.effect)
    state = Stage.BURN_IN if taint.key == readiness_taint.KEY else Stage.QUARANTINED
    try:
        node_marks.change(context, audit.Call.TAINT, state=state, taint=taint, destructive=context.step.takes_away)
    except node_marks.ForeignTaint as found:
        return Hold(found.reason)
    return Done(reasons.of("tainted", taint=f"{taint.key}={taint.value}:{taint.effect}"))
