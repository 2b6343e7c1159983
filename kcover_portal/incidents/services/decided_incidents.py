"""Notes that incidents were decided, so that they are not due any more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from kcover_portal.fleet.services import bulk_sql
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services.redecisions import labels_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedIncident:
    """An incident that was decided as read, on a node with these labels. ``again_at``: when it is decided again."""

    incident: Incident
    labels: Mapping[str, str]
    again_at: datetime | None


def mark_decided(decided: Sequence[DecidedIncident], *, now: datetime) -> set[int]:
    """Stores that incidents were decided, in one statement; returns those that are still open, by key.

    An incident with an occurrence that arrived meanwhile keeps its own due time. One that was closed after it was read
    is left as it is: nothing may be done for it.
    """
    rows = [
        {
            "id": row.incident.pk,
            "labels": labels_digest(row.labels),
            "seen_at": bulk_sql.moment(row.incident.last_at),
            "again_at": bulk_sql.moment(row.again_at) if row.again_at else None,
        }
        for row in decided
    ]
    # Reports lock incidents in the order of their nodes, and so must this.
    if len(rows) > 1 and connection.vendor == "postgresql":
        bulk_sql.run(
            "SELECT id FROM incidents_incident WHERE id = ANY(%s) ORDER BY node_id, id FOR NO KEY UPDATE",
            [[row.incident.pk for row in decided]],
        )
    given = bulk_sql.given(id="bigint", labels="text", seen_at="timestamptz", again_at="timestamptz")
    unchanged = "incidents_incident.decide_at <= %s AND incidents_incident.last_at = given.seen_at"
    at = bulk_sql.moment(now)
    still_open = bulk_sql.run(
        f"""UPDATE incidents_incident SET decided_at = %s, decided_labels = given.labels,
            decide_at = CASE WHEN {unchanged} THEN given.again_at ELSE incidents_incident.decide_at END
        FROM {given} WHERE incidents_incident.id = given.id AND incidents_incident.state = 'open'
        RETURNING incidents_incident.id""",  # nosec B608
        [at, at, bulk_sql.rows(rows)],
    )
    return {pk for (pk,) in still_open}
