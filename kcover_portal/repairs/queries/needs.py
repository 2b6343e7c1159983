"""Which repairs need attention, as a condition on rows and as the reason of one row: both say the same."""

from datetime import datetime

from django.db.models import Q

from kcover import reasons
from kcover.repairs import repairs
from kcover_portal.repairs.models import Repair

OPEN = ~Q(state=Repair.State.CLOSED)


def late(*, now: datetime) -> Q:
    """The condition on open repairs that are overdue."""
    return OPEN & Q(due__lt=now)


def needing_person(*, now: datetime) -> Q:
    """The condition on repairs that need attention: ``why`` has a reason for just these.

    A refused repair needs none once its machine has left the cluster.
    """
    unattended = Q(reported_at__lte=now - repairs.UNATTENDED_AFTER) & (Q(assignee="") | Q(due=None))
    gone = Q(state=Repair.State.REFUSED) & (Q(node=None) | Q(node__gone_at__isnull=False))
    return (late(now=now) | (OPEN & unattended)) & ~gone


def why(row: Repair, *, now: datetime) -> reasons.Reason | None:
    """The reason why a repair needs attention; None if it does not. Reads its node."""
    if row.state == Repair.State.CLOSED:
        return None
    if row.state == Repair.State.REFUSED and (row.node is None or row.node.gone_at is not None):
        return None
    return repairs.need(assignee=row.assignee, due=row.due, opened_at=row.reported_at, now=now)
