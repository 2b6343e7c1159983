"""The last decision about each of many incidents."""

from collections.abc import Collection

from django.db.models import Max

from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Decision


def of(incidents: Collection[Incident]) -> dict[int, Decision]:
    """The last decision by the incident's key, without its facts, candidates and steps; none for undecided ones."""
    if not incidents:
        return {}
    newest = Decision.objects.filter(incident__in=incidents).order_by().values("incident").annotate(newest=Max("pk"))
    rows = Decision.objects.filter(pk__in=newest.values("newest")).defer("facts", "tried", "steps")
    return {row.incident_id: row for row in rows if row.incident_id is not None}
