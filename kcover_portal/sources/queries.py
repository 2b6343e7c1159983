"""Reads of sources."""

from datetime import datetime, timedelta

from kcover_portal.fleet.models import Cluster
from kcover_portal.sources.models import Source, TakenEvent

TEST_WINDOW = timedelta(hours=1)


def named(name: str) -> Source | None:
    """The source of this name; None if there is none."""
    return Source.objects.select_related("cluster").filter(name=name).first()


def watched(cluster: Cluster, kind: str) -> Source | None:
    """The source of this kind that exists for each cluster, if it is switched on."""
    return Source.objects.filter(cluster=cluster, kind=kind, enabled=True).order_by("pk").first()


def taken_lately(source: Source, *, now: datetime) -> int:
    """The number of events that the source sent within TEST_WINDOW, without repetitions."""
    return TakenEvent.objects.filter(source=source, at__gt=now - TEST_WINDOW).count()
