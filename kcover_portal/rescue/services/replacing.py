"""Machines that went while a rescue was open on them: whatever has their name now is not what was to be rescued.

The rescue ends, and with it every question about it: a yes was to the machine that is gone (invariant 43). A worker
that is about to act finds it at the live node; this finds it by what the watch shows, for what nobody works on.
"""

from datetime import datetime
from typing import Final

from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.services import opening

OUTCOME: Final = "replaced"


def look(*, now: datetime) -> int:
    """Ends the open rescues of machines that were replaced; returns how many."""
    rows = queries.replaced().select_related("node", "cluster").order_by("pk")[:100]
    return sum(end(rescue, now=now) for rescue in rows)


def end(rescue: Rescue, *, now: datetime, token: int | None = None) -> bool:
    """Ends one; nothing is done to the new machine. Its marks are looked for by ``reconciling``, at the live node.

    ``token``: of the caller who holds the lease.
    """
    node = rescue.node
    because = f"the cluster has another machine named {node.name} now (uid {node.uid}, not {rescue.node_uid})"
    return opening.end(
        rescue, state="cancelled", outcome=OUTCOME, because=because, actor="system", now=now, token=token
    )
