"""Incidents belong to a machine: another machine that gets the node's name inherits none of them."""

from datetime import datetime

from django.db.models import F

from kcover import reasons
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import closure

MAX_CLOSED = 500  # incidents of one sweep; the next one is soon


def close_all(*, now: datetime) -> int:
    """Closes the open incidents of machines whose name another machine has now. Returns how many.

    What was seen since then, or in the present boot, is the new machine's: its agent may be faster than the watch.
    """
    rows = Incident.objects.filter(state=Incident.State.OPEN, last_at__lt=F("node__machine_since")).order_by("pk")
    old = rows.exclude(boot_id=F("node__boot_id"), node__boot_id__gt="").values_list("pk", flat=True)
    return closure.close(
        list(old[:MAX_CLOSED]), because=reasons.of("name_has_another_machine"), actor="system", now=now
    )
