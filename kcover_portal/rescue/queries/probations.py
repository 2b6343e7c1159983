"""Probations: which are due, which node is on one, and the returns from which their length is chosen."""

from datetime import datetime
from itertools import pairwise
from typing import Final

from django.db.models import QuerySet

from kcover.nodes import probation
from kcover.validation import fault_classes
from kcover_portal.fleet.models import Node
from kcover_portal.lib.prepared import Prepared
from kcover_portal.rescue.models import Probation, Rescue

MAX_DUE: Final = 100  # that one sweep takes up
MAX_RETURNS: Final = 20_000  # the latest rescues that the choice of a length considers
HEALED: Final = "healed"  # the outcome of a rescue that returned its node


def going_on() -> QuerySet[Probation]:
    """Probations of nodes that were returned and are still on it, with their nodes and clusters."""
    return Probation.objects.filter(began_at__isnull=False, ended_at=None).select_related("node__cluster", "rescue")


def on_node(node: Node) -> Probation | None:
    """The probation that the node is on; there is at most one."""
    return going_on().filter(node=node).first()


def with_marks(node: Node, *, uid: str) -> QuerySet[Probation]:
    """Probations of this machine that have not ended and state marks, also those of a patch without an answer."""
    return Probation.objects.filter(node=node, node_uid__in=("", uid), ended_at=None).exclude(marks={})


def with_due(*, now: datetime) -> QuerySet[Probation]:
    """Probations that a worker must look at, in the order of their due times."""
    return Probation.objects.filter(due_at__lte=now).order_by("due_at")


def due(*, now: datetime) -> list[tuple[int, datetime | None]]:
    """The first of ``with_due``, each with its due time."""
    return _DUE.rows(now=now)


_DUE: Prepared[tuple[int, datetime | None]] = Prepared(
    lambda now: with_due(now=now).values_list("pk", "due_at")[:MAX_DUE], now=datetime
)


def fault_class_of(rescue: Rescue) -> str:
    """The class of the fault for which the rescue was opened."""
    return _fault_class(rescue.fault_kind, rescue.fault_code)


def returns(*, now: datetime) -> list[probation.Return]:
    """The fleet's returns of the last year: nodes that automatic rescues healed, and when the next one was opened."""
    rows = Rescue.objects.filter(opened_at__gte=now - probation.LEARNS).exclude(origin=Rescue.Origin.MANUAL)
    rows = rows.exclude(incidents__drill=True).order_by("-pk")
    columns = ("node_id", "opened_at", "closed_at", "outcome", "fault_kind", "fault_code")
    latest = sorted(rows.values_list(*columns)[:MAX_RETURNS], key=lambda row: (row[0], row[1]))
    return [
        _return(closed, _fault_class(kind, code), again=following[1] if following[0] == node else None, now=now)
        for (node, _, closed, outcome, kind, code), following in pairwise([*latest, (None, None)])
        if outcome == HEALED and closed is not None
    ]


def _return(closed: datetime, fault_class: str, *, again: datetime | None, now: datetime) -> probation.Return:
    return probation.Return(fault_class, (again or now) - closed, again is not None)


def _fault_class(kind: str, code: str) -> str:
    return fault_classes.class_of(fault_classes.SeenFault(kind=kind, code=code)).name
