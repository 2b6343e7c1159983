"""Confirmations of machines: an admin vouches for what a node states of itself."""

from collections.abc import Collection
from datetime import datetime

from django.db import transaction

from kcover import audit, reasons
from kcover.machines import machine_drivers
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.machines.services.controllers import Unusable


@transaction.atomic
def confirm(row: Node, node: port.Node, *, machines: Collection[str], actor: str, reason: str, now: datetime) -> bool:
    """Believes the machine that the node states. Returns whether there was anything to confirm.

    ``row``, ``node``: the node as the portal has it, and the live one. ``machines``: the UUIDs and providerIDs that the
    admin has seen: what the node states may change until the portal looks. Raises Unusable while the two differ, and
    if the node states a machine that is not among these.
    """
    row = Node.objects.select_for_update(no_key=True).select_related("cluster").get(pk=row.pk)
    if (row.uid, row.system_uuid, row.provider_id) != (node.uid, node.system_uuid, node.provider_id):
        raise Unusable(reasons.of("machine_not_seen", node=row.name), lasting=False)
    if not row.restated:
        return False
    for name in row.restated:
        stated = getattr(row, name)
        if stated and not any(machine_drivers.same_name(name, stated, one) for one in machines):
            raise Unusable(reasons.of("machine_not_named", node=row.name, identity=stated), lasting=False)
    Node.objects.filter(pk=row.pk).update(restated={})
    act = audit.MachineConfirmed(node=row.name, system_uuid=row.system_uuid, provider_id=row.provider_id, reason=reason)
    ledger.record(row.cluster.name, act, actor=actor, now=now)
    return True
