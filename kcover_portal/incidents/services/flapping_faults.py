"""Faults that end and come back again and again, by what sources say: the end of such a fault is not trusted.

The incident stays open, so that twenty turns of one fault are one incident with one rescue. It is closed when the fault
has stayed away for FLAPPING_ENDS_AFTER.
"""

from datetime import datetime

from kcover import reasons
from kcover.nodes import health
from kcover.reasons import Reason
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.queries import seen
from kcover_portal.incidents.services import closure
from kcover_portal.lib import doorbell

WINDOW = health.FLAP_WINDOW + health.FLAPPING_ENDS_AFTER
MAX_MOVES = 20  # times that are kept


def close_unless_flapping(row: Incident, *, because: Reason, actor: str, now: datetime) -> None:
    """Closes an open incident whose fault has ended, or keeps it open while the fault flaps.

    An incident that was seen after ``row`` was read stays as it is.
    """
    if row.ended_at is not None:  # told again: it has not come back meanwhile
        return
    if not health.flapping([*_moves(row, now=now), now], now=now):
        closure.close([row.pk], because=because, actor=actor, before=row.last_at, now=now)
        return
    unchanged = Incident.objects.filter(pk=row.pk, state=Incident.State.OPEN, last_at=row.last_at)
    if unchanged.update(
        ended_at=now,
        ended_because=because.to_json(),
        ended_by=actor,
        moves=_with(row, now),
    ):
        doorbell.publish("incident", row.pk, cluster=row.cluster.name)


def changes_of_return(incident: Incident, *, now: datetime) -> dict[str, object]:
    """The columns of an open incident whose fault is told again: it has not ended, whoever said so a moment ago."""
    if incident.ended_at is None:
        return {"ended_at": None}
    return {"ended_at": None, "ended_because": {}, "moves": _with(incident, now)}


def close_ended(*, now: datetime) -> None:
    """Closes the incidents whose flapping fault has stayed away for long enough."""
    for row in seen.ended_until(now - health.FLAPPING_ENDS_AFTER):
        because = reasons.kept(row.ended_because)
        if because is not None:
            closure.close([row.pk], because=because, actor=row.ended_by, before=row.ended_at, now=now)


def _moves(row: Incident, *, now: datetime) -> list[datetime]:
    """When the fault opened, ended and came back lately."""
    alike = Incident.objects.filter(node=row.node_id, kind=row.kind, code=row.code, device=row.device)
    earlier = alike.filter(state=Incident.State.CLOSED, closed_at__gte=now - WINDOW).order_by("-pk")[:MAX_MOVES]
    return [at for one in (*earlier.only("opened_at", "closed_at", "moves"), row) for at in one.moved_at]


def _with(row: Incident, now: datetime) -> list[str]:
    return [*row.moves, now.isoformat()][-MAX_MOVES:]
