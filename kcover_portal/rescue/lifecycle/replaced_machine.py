"""Machines that were replaced while a rescue was open on them.

The machine that now has the name is not the one to rescue. The rescue ends with all its requests for approval, because
an approval is bound to the machine that is gone (invariant 43). A worker that is about to act notices the replacement
at the live node. This module notices it from the watch, for rescues that no worker is running.
"""

from datetime import datetime
from typing import Final

from kcover import reasons
from kcover_portal.rescue import queries
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.models import Rescue

OUTCOME: Final = "replaced"


def look(*, now: datetime) -> int:
    """Ends the open rescues of machines that were replaced; returns how many."""
    rows = queries.replaced().select_related("node", "cluster").order_by("pk")[:100]
    return sum(end(rescue, now=now) for rescue in rows)


def end(rescue: Rescue, *, now: datetime, token: int | None = None) -> bool:
    """Ends one rescue; nothing is done to the new machine. ``engine.reconcile`` looks for its marks at the live node.

    ``token``: of the caller, if it holds the lease.
    """
    node = rescue.node
    because = reasons.of("another_machine", node=node.name, uid=node.uid, expected=rescue.node_uid)
    return create.end(rescue, state="cancelled", outcome=OUTCOME, because=because, actor="system", now=now, token=token)
