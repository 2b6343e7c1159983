"""End a probation early, as a person or program asks for it."""

from datetime import datetime

from django.db import transaction

from kcover import audit, reasons
from kcover_portal.fleet.models import Node
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.rescue.lifecycle.create import RescueRefused
from kcover_portal.rescue.models import Probation
from kcover_portal.rescue.queries import probations
from kcover_portal.rescue.step.marks import probation_marks


def end_probation(node: Node, *, actor: str, reason: str, now: datetime) -> Probation:
    """Ends the node's probation as soon as the mode lets the portal write. Repeated, it changes nothing.

    Raises RescueRefused if the node is on no probation.
    """
    row = probations.on_node(node)
    if row is None:
        raise RescueRefused(reasons.of("no_probation", node=node.name))
    with transaction.atomic():
        if probation_marks.end_early(row, because=reasons.with_why("probation_ended_by", reason, by=actor), now=now):
            act = audit.ProbationEndRequested(rescue=row.rescue_id, node=node.name, probation=row.pk, reason=reason)
            ledger.record(node.cluster.name, act, actor=actor, now=now)
            doorbell.publish("node", node.pk, cluster=node.cluster.name)
    row.refresh_from_db()
    return row
