"""The one definition of rescues, faults and storms that need attention, for lists, counts, metrics and reminders.

What is asked of one row as well as of many stands here as a function beside its condition; a test compares them.
"""

from collections.abc import Sequence

from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery

from kcover.plans import lifecycle
from kcover_portal.incidents.models import STORM, Incident
from kcover_portal.rescue.models import Decision, Rescue, Step

AWAITING_APPROVAL = Q(state=Rescue.State.HELD, hold=Rescue.Hold.APPROVAL)
# A person must act: an open rescue asks for it, or a rescue ended badly and its marks are still on the node.
LEFT_TO_PEOPLE = (Q(needs_human=True, state__in=lifecycle.OPEN_RESCUE) & ~AWAITING_APPROVAL) | (
    (Q(needs_human=True) | Q(state=Rescue.State.FAILED)) & Q(state__in=lifecycle.CLOSED_RESCUE) & ~Q(marks={})
)
# The repair desk or another system has the node: the portal waits until it is handed back.
IN_REPAIR = Q(
    Exists(
        Step.objects.filter(
            rescue=OuterRef("pk"), name__in=("repair", "offline"), state__in=(Step.State.RUNNING, Step.State.WAITING)
        )
    ),
    state__in=(Rescue.State.RUNNING, Rescue.State.WAITING),
)
LEDGER = "ledger"  # the kind of an incident about the audit log
KINDS = {"approval": AWAITING_APPROVAL, "people": LEFT_TO_PEOPLE}


# The state of a rescue as people see it: each rescue is in exactly one.
_HELD = Q(state=Rescue.State.HELD) & ~AWAITING_APPROVAL
STATUSES = {
    "approval": AWAITING_APPROVAL,
    "people": _HELD & Q(needs_human=True),
    "held": _HELD & Q(needs_human=False),
    **{state.value: Q(state=state) for state in Rescue.State if state != Rescue.State.HELD},
}


def awaiting_approval() -> QuerySet[Rescue]:
    """Rescues that wait for a person's approval."""
    return Rescue.objects.filter(AWAITING_APPROVAL)


def left_to_people() -> QuerySet[Rescue]:
    """Rescues that a person must take care of, approvals excluded."""
    return Rescue.objects.filter(LEFT_TO_PEOPLE)


def kind_of(rescue: Rescue) -> str:
    """The one of KINDS that applies to a rescue, according to its row as read; "" if it does not need attention."""
    if rescue.state == Rescue.State.HELD and rescue.hold == Rescue.Hold.APPROVAL:
        return "approval"
    if rescue.state in lifecycle.OPEN_RESCUE:
        return "people" if rescue.needs_human else ""
    return "people" if rescue.marks and (rescue.needs_human or rescue.state == Rescue.State.FAILED) else ""


def status_of(rescue: Rescue) -> str:
    """The one of STATUSES that applies to a rescue, according to its row as read."""
    if kind_of(rescue) == "approval":
        return "approval"
    return "people" if rescue.state == Rescue.State.HELD and rescue.needs_human else rescue.state


def open_storms() -> QuerySet[Incident]:
    return Incident.objects.filter(node=None, kind=STORM, state=Incident.State.OPEN)


def open_ledger_incidents() -> QuerySet[Incident]:
    """Open incidents of clusters whose audit log differs from an anchor."""
    return Incident.objects.filter(node=None, kind=LEDGER, state=Incident.State.OPEN)


def unhandled_incidents() -> QuerySet[Incident]:
    """Open faults of nodes that no rescue handles, and that nothing will handle without a person.

    That includes nodes that still take work after a person rejected or cancelled their rescue. Faults of user programs
    are left out. So are nodes that a rescue has left to people, because that rescue is listed instead.
    """
    settled = Q(decide_at=None) | Q(pk__in=decisions_for_a_person().values("incident")) | _rejected_and_schedulable()
    rescued = Rescue.objects.filter(node=OuterRef("node"), state__in=lifecycle.OPEN_RESCUE)
    left = left_to_people().filter(node=OuterRef("node"))
    rows = Incident.objects.filter(settled, state=Incident.State.OPEN, is_user_fault=False).exclude(node=None)
    return rows.exclude(Exists(rescued)).exclude(Exists(left))


def _rejected_and_schedulable() -> Q:
    """Faults whose rescue was rejected or cancelled, on nodes that still take work.

    These faults are decided repeatedly, but ``blocking_rescue`` holds each decision back until a person releases the
    node. After a later occurrence a guard or a pause may hold the decision back. The fault stays on the list until a
    new rescue opens.
    """
    newest = Rescue.objects.filter(node=OuterRef("node")).order_by("-pk").values("pk")[:1]
    cancelled = Rescue.objects.filter(pk=Subquery(newest), state=Rescue.State.CANCELLED)
    blocking = cancelled.filter(Q(closed_at__gte=OuterRef("opened_at")) | ~Q(marks={}))
    return Q(Exists(blocking), node__in_cluster=True, node__unschedulable=False)


def decisions_for_a_person() -> QuerySet[Decision]:
    """The newest decisions about open faults that ask for a person because automation has not helped."""
    newest = Decision.objects.filter(incident=OuterRef("incident")).order_by("-pk").values("pk")[:1]
    return Decision.objects.filter(needs_person=True, pk=Subquery(newest), incident__state=Incident.State.OPEN)


def blocking_rescue(past: Sequence[Rescue], incident: Incident) -> Rescue | None:
    """The closed rescue after which automation leaves the node's fault to a person, if there is one.

    ``past``: rescues of the node, newest first. Such a rescue failed, escalated or was stopped by a person, or is an
    operator's own cordon. It counts while its marks are on the node, and for every occurrence before its end. A fault
    seen after the node was taken back is a new one. A later rescue that took nothing back, such as a release of what
    was cordoned again, does not lift it. A cancelled rescue and an operator's cordon block decisions. They are on
    the list of what needs attention only if the node still takes work: otherwise a person has already acted.
    """
    closed = [rescue for rescue in past if rescue.state in lifecycle.CLOSED_RESCUE]
    marked = [rescue for rescue in closed if rescue.marks]
    return next((rescue for rescue in (*closed[:1], *marked[:1]) if _blocks(rescue, incident)), None)


def _blocks(last: Rescue, incident: Incident) -> bool:
    if last.closed_at is None:
        return False
    marked = bool(last.marks)
    if last.origin == Rescue.Origin.MANUAL and last.state == Rescue.State.SUCCEEDED:
        return marked
    stopped = last.needs_human or last.state in (Rescue.State.FAILED, Rescue.State.CANCELLED)
    return stopped and (marked or incident.last_at <= last.closed_at)
