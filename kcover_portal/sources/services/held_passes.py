"""Ends of alerts that were told while their node was not Ready.

The series of an alert may vanish with its node, so such an end closes nothing. Alertmanager tells it once. It counts
when the node has been Ready again for so long that the alert would fire if its fault was still there.
"""

from datetime import datetime, timedelta
from typing import Final

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat

from kcover.sources import settings
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.sources.models import Source, ToldSeries
from kcover_portal.sources.services import told_series

MAX_ROWS: Final = 500  # series at a time; the next sweep is soon
HELD_FOR: Final = timedelta(days=1)  # after the node was Ready again: what is open then has another cause


def apply(*, now: datetime) -> None:
    """Closes what these ends are about, as if they were told now. Costs one statement without any."""
    told: dict[int, list[ToldSeries]] = {}
    for row in _held(now=now)[:MAX_ROWS]:
        since, doubt = row.node.ready_since, settings.doubt(row.source.kind, row.source.settings)
        if since is not None and since <= now - doubt:
            told.setdefault(row.source_id, []).append(row)
    for rows in told.values():
        source = rows[0].source
        passed = [
            (
                row.node,
                incidents.PassedCheck(
                    node=row.node.name,
                    kind=row.kind,
                    check=row.check_name,
                    device=told_series.device_of(row),
                    still=tuple(map(told_series.device_of, _others(row))),
                    at=row.passed_at,
                    is_of_series=True,
                ),
            )
            for row in rows
        ]
        incidents.ingest_observed(source.name, [], passed, now=now)
        # Other sources reported what is still open, and the incident keeps these ends. They need not be applied again.
        again = _held(now=now).filter(pk__in=[row.pk for row in rows]).values_list("pk", flat=True)
        ToldSeries.objects.filter(pk__in=list(again)).update(at=now)


def _held(*, now: datetime) -> QuerySet[ToldSeries]:
    """The alerts that ended before their node was Ready, and of whose fault no agent told."""
    by_agent = Exists(Occurrence.objects.filter(incident=OuterRef("pk"), witness=""))
    of_check = Q(code=OuterRef("check_name")) | Q(code__startswith=Concat(OuterRef("check_name"), Value("/")))
    about = (of_check & Q(kind=OuterRef("kind"))) | ~Q(told_checks=[])
    of_node = Incident.objects.filter(~by_agent, about, node=OuterRef("node"))
    open_now = of_node.filter(state=Incident.State.OPEN, ended_at=None)
    rows = ToldSeries.objects.filter(told_series.ENDED, Exists(open_now), source__kind=Source.Kind.ALERTMANAGER)
    came_back = Q(node__ready_since__gt=F("at")) & Q(node__ready_since__gt=now - HELD_FOR)
    ready = rows.filter(came_back, node__in_cluster=True, node__ready=True, source__enabled=True)
    return ready.select_related("source", "node__cluster").order_by("pk")


def _others(row: ToldSeries) -> QuerySet[ToldSeries]:
    """The other series of the alert that still fire."""
    alike = ToldSeries.objects.filter(told_series.FIRES, source=row.source_id, node=row.node_id, kind=row.kind)
    return alike.filter(check_name=row.check_name).exclude(pk=row.pk).order_by("pk")
