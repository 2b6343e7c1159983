"""What the ledger's entries speak of: the rows behind a look at the news, each kind read together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Exists, OuterRef

from kcover import lifecycle
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.models import Decision, Rescue


@dataclass(slots=True)
class Facts:
    """Rows by id. ``settled``: of closed incidents, the ended rescues that have no open incident any more."""

    rescues: Mapping[int, Rescue] = field(default_factory=dict)
    incidents: Mapping[int, Incident] = field(default_factory=dict)
    decisions: Mapping[int, Decision] = field(default_factory=dict)
    settled: Mapping[int, Sequence[int]] = field(default_factory=dict)


def of(entries: Sequence[Entry]) -> Facts:
    """Everything that the entries name, in a query for each kind of row."""
    if not entries:
        return Facts()
    rescues = Rescue.objects.in_bulk([one.rescue for one in entries if one.rescue is not None])
    about = [number(one.subject) for one in entries if one.verb in ("incident.closed", "storm.opened")]
    incidents = Incident.objects.in_bulk([pk for pk in about if pk is not None])
    held = [one.data.get("decision") for one in entries if one.verb == "decision.hold"]
    decisions = Decision.objects.select_related("cluster", "incident").in_bulk(
        [pk for pk in held if isinstance(pk, int)]
    )
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


def number(subject: str) -> int | None:
    """The id in "incident 41"."""
    _, _, text = subject.partition(" ")
    return int(text) if text.isdecimal() else None
