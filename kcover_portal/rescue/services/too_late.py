"""What was decided, or asked for, and could not be begun: it ends where it is too late, or has nothing left to do.

Too late it is after the moment that a decision system named (KCE's ``escalateTime``), and when the fault was not seen
for the cluster's ``expiry``: as held decisions are given up, so is what was held back since its decision. And nothing
is left to do where the fault is over (invariants 15, 32).
"""

from datetime import datetime

from kcover import decision, reasons
from kcover import marks as kernel_marks
from kcover_portal.fleet import queries as fleet
from kcover_portal.ledger import queries as ledger
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.services import approving, opening


def end_if_so(rescue: Rescue, step: Step, *, now: datetime) -> bool:
    """Ends a rescue that is not to begin any more; False where it has begun, or may. Part of the caller's transaction,
    who holds the lease.

    A first call whose answer nobody heard may have been made: where the node shows it, the rescue has begun and goes
    on; where it does not (yet), it ends and a person is asked to look.
    """
    if approving.has_begun(step) or rescue.marks:
        return False
    outcome, because = _end(rescue, step, now=now)
    if not outcome:
        return False
    shown = kernel_marks.read(rescue.node.marks)
    if shown is not None and shown.rescue == rescue.pk:
        return False
    told = ledger.timeline(rescue.cluster.name, rescue=rescue.pk)
    not_made = told.filter(verb__endswith=".failed", data__kind="HeldBack").count()
    unclear = told.filter(verb__endswith=".begun").count() > not_made
    if unclear:
        because += "; whether a call that was made before changed the node is not known: look at it"
    opening.end(
        rescue,
        state="cancelled",
        outcome=outcome,
        because=because,
        actor="system",
        now=now,
        needs_human=unclear,
        token=rescue.token,
    )
    return True


def _end(rescue: Rescue, step: Step, *, now: datetime) -> tuple[str, str]:
    """How it ends, and why; nothing where it may begin."""
    start_by = rescue.request.get("startBy")
    if step.index == 0 and start_by and now > datetime.fromisoformat(start_by):
        return "expired", f"it was not to be started after {start_by}, and could not be before"
    stale = _stale(rescue, now=now) if step.index == 0 else ""
    if stale:
        return "given_up", stale
    if step.name in decision.ISOLATING and approving.healed(rescue):
        return "void", "the fault is over: the node is not taken out any more"
    return "", ""


def _stale(rescue: Rescue, *, now: datetime) -> str:
    """Why what was held back is given up; "" where the fault was seen lately, or somebody said yes to it."""
    expiry = fleet.guards_of(rescue.cluster).expiry
    since = now - expiry
    if rescue.opened_at >= since or rescue.approvals.filter(approved=True, at__gte=since).exists():
        return ""
    last = rescue.incidents.order_by("-last_at").values_list("last_at", flat=True).first()
    if last is None or last >= since:
        return ""
    return str(reasons.of("expired", seen=reasons.moment(last), within=reasons.span(expiry)))
