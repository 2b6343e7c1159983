"""Reads of repairs."""

from datetime import datetime
from typing import TypeVar

from django.db.models import Exists, Model, OuterRef, Q, QuerySet

from kcover.actions import validate
from kcover.repairs import repairs
from kcover_portal.fleet.models import Node
from kcover_portal.repairs.models import Repair, VendorTerms
from kcover_portal.repairs.queries import needs
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.rescue.queries import needs_person

ESCALATED = "escalated"  # the outcome of a rescue whose rule calls a person
REPORTED_OUTCOMES = (ESCALATED, validate.FAILED_OUTCOME)  # of rescues that people must repair
Row = TypeVar("Row", bound=Model)


def open_repairs() -> QuerySet[Repair]:
    """Repairs that are not closed."""
    return Repair.objects.filter(needs.OPEN)


def open_of(machine: Node | Repair) -> QuerySet[Repair]:
    """The open repairs of a node, or the others of a repair's machine, oldest first."""
    if isinstance(machine, Node):
        return open_repairs().filter(cluster=machine.cluster_id, node_name=machine.name).order_by("pk")
    rows = open_repairs().filter(cluster=machine.cluster_id, node_name=machine.node_name)
    return rows.exclude(pk=machine.pk).order_by("pk")


def left_to_people(*, now: datetime) -> QuerySet[Repair]:
    """Repairs that need attention: the one definition for lists, counts, metrics and notifications."""
    return Repair.objects.filter(needs.needing_person(now=now))


def due_by_terms(vendor: str, state: repairs.State, *, now: datetime) -> datetime | None:
    """The next date of a repair that enters the state now, by the vendor's terms; None if they name none."""
    row = VendorTerms.objects.filter(vendor=vendor).first() if vendor else None
    return row.terms.due(state, now=now) if row else None


def awaiting_validation() -> QuerySet[Repair]:
    """Repairs whose machine is back, with their nodes, oldest first."""
    rows = Repair.objects.filter(state__in=repairs.AT_THE_DESK).exclude(node=None)
    return rows.select_related("cluster", "node").order_by("pk")


def escalated_rescues() -> QuerySet[Rescue]:
    """Rescues that called a person, or whose node failed its validation; without drills.

    Their marks are still on the node, and no repair covers them.
    """
    rows = needs_person.left_to_people().filter(outcome__in=REPORTED_OUTCOMES, closed_at__isnull=False)
    return _uncovered(rows.exclude(incidents__drill=True), "closed_at").select_related("cluster", "node")


def rescues_on_probation() -> QuerySet[Rescue]:
    """Rescues that a fault on probation opened, and that no repair covers; without drills."""
    rows = Rescue.objects.filter(on_probation=True).exclude(incidents__drill=True)
    return _uncovered(rows, "opened_at").select_related("cluster", "node")


def decisions_at_a_limit() -> QuerySet[Decision]:
    """Decisions that ask for a person after too many reboots, and that no repair covers; without drills."""
    rows = needs_person.decisions_for_a_person().filter(incident__drill=False)
    return _uncovered(rows, "incident__last_at").select_related("cluster", "node", "incident")


def _uncovered(rows: QuerySet[Row], at: str) -> QuerySet[Row]:
    """The rows, oldest first, whose node has had no open repair at the time ``at`` (a lookup) or later."""
    of_node = Repair.objects.filter(cluster=OuterRef("cluster"), node_name=OuterRef("node__name"))
    return rows.exclude(Exists(of_node.filter(Q(closed_at=None) | Q(closed_at__gte=OuterRef(at))))).order_by("pk")
