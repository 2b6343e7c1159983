"""What was to begin by a moment (KCE's ``escalateTime``) and could not: it ends, and nothing of it is begun after."""

from datetime import datetime

from kcover import marks as kernel_marks
from kcover_portal.ledger import queries as ledger
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.services import approving, opening


def end_if_so(rescue: Rescue, step: Step, *, now: datetime) -> bool:
    """Ends a rescue that has not begun in time; False where it has, or has time. Part of the caller's transaction.

    A first call whose answer nobody heard may have been made: where the node shows it, the rescue has begun and goes
    on; where it does not (yet), it ends and a person is asked to look.
    """
    start_by = rescue.request.get("startBy")
    if not start_by or now <= datetime.fromisoformat(start_by):
        return False
    if step.index > 0 or approving.has_begun(step) or rescue.marks:
        return False
    shown = kernel_marks.read(rescue.node.marks)
    if shown is not None and shown.rescue == rescue.pk:
        return False
    because = f"it was not to be started after {start_by}, and could not be before"
    unclear = ledger.timeline(rescue.cluster.name, rescue=rescue.pk).filter(verb__endswith=".begun").exists()
    if unclear:
        because += "; whether a call that was made before changed the node is not known: look at it"
    opening.end(
        rescue, state="cancelled", outcome="expired", because=because, actor="system", now=now, needs_human=unclear
    )
    return True
