"""Machines that were replaced while a rescue was open on them.

The machine that now has the name is not the one to rescue. The rescue ends with all its requests for approval, because
an approval is bound to the machine that is gone (invariant 43). A worker that is about to act notices the replacement
at the live node. This module notices it from the watch, for rescues that no worker is running.
"""

from datetime import datetime
from typing import Final

from kcover import reasons
from kcover.actions import replace
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import queries as incident_queries, services as incidents
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
    ending = create.Ending(state="cancelled", outcome=OUTCOME, because=because)
    if not create.end(rescue, ending, actor="system", now=now, token=token):
        return False
    end_faults(rescue, because=because, now=now)
    return True


def end_faults(rescue: Rescue, *, because: reasons.Reason, now: datetime) -> None:
    """Closes the open faults of the node if the rescue had its machine replaced: they left with the machine.

    If somebody else replaced it, nobody has said why: ``incidents.services.replaced_machines`` closes what the new
    machine cannot have. Faults of the new machine stay open: only those of known boots of the old one end.
    """
    steps = rescue.steps.filter(name=replace.SPEC.name)
    if not any(step.progress_as(replace.Progress).committed for step in steps):
        return
    node = Node.objects.get(pk=rescue.node_id)
    boots = ["", *node.past_boots, *([node.boot_id] if node.uid == rescue.node_uid else [])]
    left = list(incident_queries.open_on(node).filter(boot_id__in=boots).values_list("pk", flat=True))
    incidents.close(left, because=because, actor=f"rescue {rescue.pk}", now=now, before=now)
