"""The trace that a rescue belongs to."""

from kcover_portal import tracing
from kcover_portal.rescue.models import Rescue


def subject_of(rescue: Rescue) -> tracing.Subject | None:
    """The incident whose decision opened the rescue, or the rescue itself; None if there are no traces."""
    if not tracing.is_on():
        return None
    decision = rescue.decision
    return tracing.incident(decision.incident_id) if decision and decision.incident_id else tracing.rescue(rescue.pk)


def subject_of_key(rescue: int) -> tracing.Subject | None:
    """The same by the rescue's key; None also if it does not exist."""
    row = Rescue.objects.select_related("decision").filter(pk=rescue).first() if tracing.is_on() else None
    return subject_of(row) if row is not None else None
