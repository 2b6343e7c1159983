"""Heartbeats of processes and periodic tasks."""

from datetime import datetime, timedelta

from django.db.models import Case, F, Q, Value, When

from kcover_portal.lib.prepared import PreparedUpdate
from kcover_portal.runtime.models import Heartbeat

_BEAT = PreparedUpdate(lambda name: Heartbeat.objects.filter(name=name), name=str)


def beat(name: str, *, now: datetime, gap: timedelta | None = None) -> None:
    """Records that the process or task is alive.

    With ``gap`` the row also keeps since when heartbeats have come without a longer gap (``queries.alive_since``).
    """
    if gap is None:
        known = _BEAT.run({"at": now}, name=name)
    else:
        broken = Q(since__isnull=True) | Q(at__lt=now - gap)
        since = Case(When(broken, then=Value(now)), default=F("since"))
        known = Heartbeat.objects.filter(name=name).update(at=now, since=since)
    if not known:
        Heartbeat.objects.get_or_create(name=name, defaults={"at": now, "since": now if gap is not None else None})
