"""Incidents belong to a machine: another machine that gets the node's name inherits none of them."""

from datetime import datetime

from kcover import reasons
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.queries import seen
from kcover_portal.incidents.services import closure

MAX_CLOSED = 500  # incidents of one sweep; the next one is soon


def close_all(*, now: datetime) -> int:
    """Closes the open incidents of machines whose name another machine has now. Returns how many."""
    rows = Incident.objects.filter(seen.of_earlier_machine(), state=Incident.State.OPEN).order_by("pk")
    old = rows.values_list("pk", flat=True)
    return closure.close(
        list(old[:MAX_CLOSED]), because=reasons.of("name_has_another_machine"), actor="system", now=now
    )
