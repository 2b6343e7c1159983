"""cordon: keep new pods off the node."""

from django.db.models import F

from kcover import audit, reasons
from kcover.actions import cordon as core
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.step import node_marks
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.outcomes import Done, Outcome

STATE = "quarantined"


def run(context: Context) -> Outcome:
    """Cordons the node. A cordon that someone else had set stays theirs (invariant 18)."""
    marks = node_marks.change(context, audit.Call.CORDON, state=STATE, cordon=True)
    return Done(reasons.of("cordoned_already" if marks.foreign_cordon else "cordoned"))


def begin(context: Context) -> list[ledger.Draft]:
    """The ledger's entry before a cordon that follows its decision at once; nothing for another first step.

    Part of the decision's own transaction, which saves a commit between a fault and its node's cordon.
    """
    if context.step.name != core.SPEC.name:
        return []
    context.begun = audit.Call.CORDON
    Rescue.objects.filter(pk=context.rescue.pk).update(calls_begun=F("calls_begun") + 1)
    return [context.begin(audit.Call.CORDON, wanted=audit.NodePatch(state=STATE, cordon=True))]
