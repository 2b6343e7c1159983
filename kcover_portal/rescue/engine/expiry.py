"""Expiry: a rescue that could not begin ends if it is too late, or if nothing is left to do.

It is too late after the time that a decision system named (KCE's ``escalateTime``), and when the fault was not seen
within the cluster's ``expiry``: held decisions expire, and so does a rescue that was held back since its decision.
Nothing is left to do if the fault has cleared (invariants 15, 32).
"""

from datetime import datetime

from kcover import reasons
from kcover.nodes import marks as core_marks
from kcover.reasons import Reason
from kcover_portal.fleet import queries as fleet
from kcover_portal.rescue.control import approvals
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.models import Rescue, Step


def end_if_expired(rescue: Rescue, step: Step, *, now: datetime) -> bool:
    """Ends a rescue that must not begin any more; False if it has begun, or may begin.

    Part of the transaction of the caller, which holds the lease. A first call with an unknown result may have been
    made: if the node shows it, the rescue has begun and continues; if it does not (yet), the rescue ends and a
    person is asked to check.
    """
    if approvals.has_begun(step) or rescue.marks:
        return False
    end = _end(rescue, step, now=now)
    if end is None:
        return False
    outcome, because = end
    shown = core_marks.read(rescue.node.marks)
    if shown is not None and shown.rescue == rescue.pk:
        return False
    unclear = rescue.calls_begun > 0
    if unclear:
        because = reasons.both(because, reasons.of("call_may_have_run"))
    ending = create.Ending(state="cancelled", outcome=outcome, because=because, needs_human=unclear)
    create.end(rescue, ending, actor="system", now=now, token=rescue.token)
    return True


def _end(rescue: Rescue, step: Step, *, now: datetime) -> tuple[str, Reason] | None:
    """The outcome and why; None if it may begin."""
    start_by = rescue.request.get("startBy")
    if step.index == 0 and start_by and now > datetime.fromisoformat(start_by):
        return "expired", reasons.of("start_by_passed", start_by=start_by)
    stale = _stale(rescue, now=now) if step.index == 0 else None
    if stale is not None:
        return "given_up", stale
    if step.spec.isolates and approvals.healed(rescue):
        return "void", reasons.of("fault_cleared_before")
    return None


def _stale(rescue: Rescue, *, now: datetime) -> Reason | None:
    """The reason why a rescue that was held back expires; None if the fault was seen recently, or someone approved."""
    expiry = fleet.guards_of(rescue.cluster).expiry
    since = now - expiry
    if rescue.opened_at >= since or rescue.approvals.filter(approved=True, at__gte=since).exists():
        return None
    last = rescue.incidents.order_by("-last_at").values_list("last_at", flat=True).first()
    if last is None or last >= since:
        return None
    return reasons.of("expired", seen=reasons.moment(last), within=reasons.span(expiry))
