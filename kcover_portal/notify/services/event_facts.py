"""The rows that audit entries refer to, each kind read in one query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Exists, OuterRef

from kcover import audit
from kcover.plans import lifecycle
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Decision, Rescue


@dataclass(slots=True)
class Facts:
    """Rows by id. ``settled``: by closed incident, the ended rescues that have no open incident any more."""

    rescues: Mapping[int, Rescue] = field(default_factory=dict)
    incidents: Mapping[int, Incident] = field(default_factory=dict)
    decisions: Mapping[int, Decision] = field(default_factory=dict)
    settled: Mapping[int, Sequence[int]] = field(default_factory=dict)


def of(acts: Sequence[audit.Act]) -> Facts:
    """Everything that the acts name, in a query for each kind of row."""
    if not acts:
        return Facts()
    about_rescues = (audit.RescueAct, audit.StepAct, audit.DeviceRuleGone)
    rescues = Rescue.objects.in_bulk({act.rescue for act in acts if isinstance(act, about_rescues)})
    incidents = Incident.objects.in_bulk(
        {act.incident for act in acts if isinstance(act, audit.IncidentClosed | audit.StormOpened)}
    )
    decided = {act.decision for act in acts if isinstance(act, audit.DecisionMade)}
    decisions = Decision.objects.select_related("cluster", "incident").in_bulk(decided)
    closed = [pk for pk, row in incidents.items() if row.state == Incident.State.CLOSED]
    return Facts(rescues=rescues, incidents=incidents, decisions=decisions, settled=_settled(closed))


def _settled(closed: Sequence[int]) -> Mapping[int, Sequence[int]]:
    """The ended rescues of these closed incidents that have no open one any more."""
    if not closed:
        return {}
    rows = Rescue.objects.filter(incidents__in=closed, state__in=lifecycle.CLOSED_RESCUE)
    rows = rows.exclude(Exists(Incident.objects.filter(rescues=OuterRef("pk"), state=Incident.State.OPEN)))
    found: dict[int, list[int]] = {}
    for incident, rescue in rows.order_by("pk").values_list("incidents", "pk"):
        found.setdefault(incident, []).append(rescue)
    return found
