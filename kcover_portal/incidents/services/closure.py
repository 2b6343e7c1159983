"""Closing incidents: by proof or by a person, never by silence."""

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from kcover import audit, reasons
from kcover.reasons import Reason
from kcover_portal.incidents import queries
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import Refused


class CloseRefused(Refused):
    """The request conflicts with the present state; the reason says why."""


def close(
    incidents: Sequence[int],
    *,
    because: Reason,
    actor: str,
    now: datetime,
    before: datetime | None = None,
    repaired_at: datetime | None = None,
) -> int:
    """Closes open incidents by id and stores why. Those that were seen after ``before`` stay open.

    ``repaired_at``: when the repair that ended them was done; a source may yet tell of what was before. A late proof
    never closes a newer fault (invariant 4). Returns how many were closed.
    """
    if not incidents:
        return 0
    with transaction.atomic():
        found = Incident.objects.filter(pk__in=incidents, state=Incident.State.OPEN).order_by("node_id", "pk")
        # A report that is being stored ends first. Only a new statement sees whether it is of before.
        locked = list(found.select_for_update(no_key=True).values_list("pk", flat=True))
        rows = found.filter(pk__in=locked).select_related("node", "cluster")
        if before is not None:
            rows = rows.exclude(queries.seen_after(before))
        done = [
            row
            for row in rows
            if Incident.objects.filter(pk=row.pk, state=Incident.State.OPEN).update(
                state=Incident.State.CLOSED,
                closed_at=now,
                closed_because=because.to_json(),
                decide_at=None,
                ended_at=None,
                repaired_at=repaired_at,
            )
        ]
        for row in done:
            act = audit.IncidentClosed(incident=row.pk, node=row.node.name if row.node else "", because=because)
            ledger.record(row.cluster.name, act, actor=actor, now=now)
            doorbell.publish("incident", row.pk, cluster=row.cluster.name)
    return len(done)


def held_by(storm: Incident) -> QuerySet[Incident]:
    """The open faults of a storm's nodes that are decided again when it is closed."""
    return Incident.objects.filter(
        cluster=storm.cluster, node__name__in=storm.scope, state=Incident.State.OPEN, decide_at__isnull=False
    )


def close_by_hand(incident: Incident, *, actor: str, reason: str, now: datetime) -> None:
    """Closes an incident because a person confirms that the fault is gone.

    Raises CloseRefused if it is already closed. Faults that a closed storm held back are decided again at once.
    """
    with transaction.atomic():
        if not close([incident.pk], because=reasons.with_why("closed_by", reason, by=actor), actor=actor, now=now):
            raise CloseRefused(reasons.of("incident_closed_already", incident=str(incident.pk)))
        if incident.node is None:
            held = held_by(incident)
            for pk in held.values_list("pk", flat=True):
                doorbell.ring("rescue.decide", pk)
            held.update(decide_at=now)
