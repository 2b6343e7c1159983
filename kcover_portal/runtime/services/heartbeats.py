"""Heartbeats of processes and periodic tasks."""

from datetime import datetime, timedelta

from django.db.models import Case, F, Q, Value, When

from kcover_portal.runtime.models import Heartbeat


def beat(name: str, *, now: datetime, gap: timedelta | None = None) -> None:
    """Records that the process or task is alive.

    With ``gap`` the row also keeps since when heartbeats have come without a longer gap (``queries.alive_since``).
    """
    since: F | Case = F("since")
    if gap is not None:
        broken = Q(since__isnull=True) | Q(at__lt=now - gap)
        since = Case(When(broken, then=Value(now)), default=F("since"))
    rows = Heartbeat.objects.filter(name=name)
    if not rows.update(at=now, since=since):
        Heartbeat.objects.get_or_create(name=name, defaults={"at": now, "since": now if gap is not None else None})
