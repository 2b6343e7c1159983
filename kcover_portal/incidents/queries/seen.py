"""When incidents were seen: in which boot, and after which time, whenever it was told."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Exists, F, OuterRef, Q, QuerySet

from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.lib.prepared import Prepared

MAX_LATE_SHOWN = 5


def seen_in(boot_id: str) -> Q:
    """Incidents that occurred in this boot, even if an occurrence of an earlier boot was delivered later."""
    return Q(boot_id=boot_id) | Q(Exists(Occurrence.objects.filter(incident=OuterRef("pk"), boot_id=boot_id)))


def of_earlier_machine() -> Q:
    """Incidents of a machine whose name another machine has now.

    What was seen since then, or in the present boot, is the new machine's: its agent may be faster than the watch.
    """
    in_present_boot = Q(boot_id=F("node__boot_id"), node__boot_id__gt="")
    return Q(last_at__lt=F("node__machine_since")) & ~in_present_boot


def ended_until(at: datetime) -> QuerySet[Incident]:
    """Open incidents whose flapping fault ended by this time, and has stayed away since."""
    rows = Incident.objects.filter(state=Incident.State.OPEN, ended_at__lte=at)
    return rows.select_related("cluster").order_by("pk")


def seen_after(at: datetime) -> Q:
    """Incidents that were seen after this time, and not only told after it: a source may tell of what was before."""
    return _seen(at, later="gt", earlier="lte")


def seen_since(at: datetime) -> Q:
    """As ``seen_after``, with those that were seen at this very time."""
    return _seen(at, later="gte", earlier="lt")


def _seen(at: datetime, *, later: str, earlier: str) -> Q:
    rows = Occurrence.objects.filter(incident=OuterRef("pk"))
    told = rows.filter(**{f"at__{later}": at, f"earliest_at__{earlier}": at})
    seen = rows.filter(Q(**{f"earliest_at__{later}": at}) | Q(**{f"at__{later}": at, "earliest_at": None}))
    return Q(**{f"last_at__{later}": at}) & (~Q(Exists(told)) | Q(Exists(seen)))


def seen_within(incident: Incident, seconds: int, *, now: datetime) -> int:
    """The number of occurrences in the last ``seconds``, by the best witness, because all saw the same fault.

    What a source tells at once after an outage counts by its own times.
    """
    within = timedelta(seconds=seconds)
    rows = incident.occurrences.filter(at__gte=now - within, at__lte=now).order_by()
    found: defaultdict[str, list[tuple[datetime, int]]] = defaultdict(list)
    for witness, earliest, at, count in rows.filter(late_seconds=None).values_list(
        "witness", "earliest_at", "at", "count"
    ):
        found[witness].append((earliest or at, count))
    latest = {witness: max(at for at, _ in told) for witness, told in found.items()}
    return max(
        (sum(count for at, count in told if at >= latest[witness] - within) for witness, told in found.items()),
        default=1,
    )


@dataclass(frozen=True, slots=True)
class LateReport:
    """What was told late. ``fault``: kind, code and device. ``seconds``: from its own time until it was stored."""

    source: str
    fault: str
    seconds: int


def told_late(node: Node, since: datetime, *, boot_id: str = "") -> Sequence[LateReport]:
    """What was told since then of faults from before, in their order: the first MAX_LATE_SHOWN.

    ``boot_id``: the present boot; "": the node was not rebooted.
    """
    return [_late_report(row) for row in _TOLD_LATE.rows(node=node.pk, since=since, boot_id=boot_id)]


def in_doubt(node: Node) -> tuple[Sequence[LateReport], datetime] | None:
    """The states that may be of the present boot, the first MAX_LATE_SHOWN, and the time when the last is settled."""
    rows = _IN_DOUBT.rows(node=node.pk)
    if not rows:
        return None
    return [_late_report(row) for row in rows[:MAX_LATE_SHOWN]], max(row.doubt_until or row.at for row in rows)


def _in_doubt(node: int) -> QuerySet[Occurrence]:
    rows = Occurrence.objects.filter(node=node, doubt_until__isnull=False, incident__state=Incident.State.OPEN)
    return rows.select_related("incident").order_by("pk")


_IN_DOUBT = Prepared(_in_doubt, node=int)


def doubt_is_over(*, now: datetime) -> QuerySet[Occurrence]:
    """The states that still stand after the time of their doubt."""
    return Occurrence.objects.filter(doubt_until__lte=now)


def is_doubtful() -> Q:
    """Incidents with a state that may be of the present boot."""
    return Q(Exists(Occurrence.objects.filter(incident=OuterRef("pk"), doubt_until__isnull=False)))


def _late_report(row: Occurrence) -> LateReport:
    return LateReport(
        source=row.told_by,
        fault=" ".join(part for part in (row.incident.kind, row.incident.code, row.incident.device) if part),
        seconds=round(row.late_seconds or (row.at - (row.seen_at or row.at)).total_seconds()),
    )


def _told_late(node: int, since: datetime, boot_id: str) -> QuerySet[Occurrence]:
    before = Q(late_seconds__isnull=False) | Q(earliest_at__lt=since)
    rows = Occurrence.objects.filter(before, node=node, at__gte=since, doubt_until=None)
    return rows.exclude(boot_id=boot_id).select_related("incident").order_by("pk")[:MAX_LATE_SHOWN]


_TOLD_LATE = Prepared(_told_late, node=int, since=datetime, boot_id=str)
