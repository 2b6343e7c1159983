"""What closing a storm would do: the decisions about the faults that it holds back, as they would be at that moment."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from kcover.decisions import decide as core
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import closure
from kcover_portal.rescue import queries

MAX_NODES = 100


@dataclass(frozen=True, slots=True)
class AfterStorm:
    """What would be decided about one node of the storm once that is closed."""

    node: Node
    incident: Incident
    decision: core.Decision


def preview(storm: Incident, *, now: datetime) -> Sequence[AfterStorm]:
    """The decisions about the nodes whose faults the storm holds back, the oldest fault first; at most MAX_NODES.

    The storm is closed for the time of the calculation only: nothing is written. Slots go to the oldest faults, as they
    do when the storm is closed.
    """
    with transaction.atomic():
        Incident.objects.filter(pk=storm.pk).update(state=Incident.State.CLOSED)
        found = list(_decided(storm, now=now))
        transaction.set_rollback(True)
    return found


def _decided(storm: Incident, *, now: datetime) -> Sequence[AfterStorm]:
    cases: dict[int, tuple[Node, Incident]] = {}
    for row in closure.held_by(storm).select_related("node__cluster", "cluster").order_by("opened_at", "pk"):
        if row.node is not None and len(cases) < MAX_NODES:
            cases.setdefault(row.node.pk, (row.node, row))
    if not cases:
        return []
    situations = queries.Situations(storm.cluster, list(cases.values()), now=now)
    found = []
    for node, incident in cases.values():
        decision = core.decide(situations.of(node))
        if decision.answer in ("rescue", "approve"):
            situations.add(node, decision)
        found.append(AfterStorm(node, incident, decision))
    return found
