"""Ask a node's agent for a bundle."""

from datetime import datetime, timedelta

from django.db import transaction

from kcover.evidence import bundle as core
from kcover_portal.evidence import queries
from kcover_portal.evidence.models import Bundle
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Command, Node

OFFER_LIFETIME = timedelta(hours=1)  # a drain may take longer, but an agent that is away for so long is lost


def request(node: Node, *, rescue: int, number: int, boot_id: str, now: datetime) -> bool:
    """Asks the node's agent for the bundle with this number of a rescue, once; returns whether it did so now.

    ``boot_id``: the boot whose evidence is wanted; the agent refuses in another one. "": any boot.
    """
    with transaction.atomic():
        row, created = Bundle.objects.get_or_create(
            rescue=rescue, number=number, defaults={"node": node, "requested_at": now}
        )
        if created:
            fleet.ask_agent(
                node,
                core.COMMAND,
                key=queries.key_of(rescue, number),
                args={"bundle": str(row.pk), **({"boot_id": boot_id} if boot_id else {})},
                expires_at=now + OFFER_LIFETIME,
                now=now,
                requester=fleet.Requester(Command.Requester.RESCUE, rescue),
            )
    return created
