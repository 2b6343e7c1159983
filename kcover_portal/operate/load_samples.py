"""Keeps what the portal had to do over the last day, for the charts of the page *System*."""

from datetime import datetime

from django.db.models import Sum

from kcover_portal.runtime import queries as runtime
from kcover_portal.runtime.models import LoadSample
from kcover_portal.shared_reads import due_work
from kcover_portal.sources.models import Source


def take(*, now: datetime) -> None:
    """Keeps one sample; a second one within the same INTERVAL replaces it."""
    ingest, due = runtime.counts("ingest"), due_work.of(None, now=now)
    told = Source.objects.aggregate(accepted=Sum("accepted"), rejected=Sum("rejected"))
    LoadSample.objects.update_or_create(
        slot=runtime.load_slot(now),
        defaults={
            "at": now,
            "reports": ingest.get("reports", 0),
            "refused": sum(ingest.get(name, 0) for name in ("failed", "busy", "limited")),
            "events": told["accepted"] or 0,
            "rejected": told["rejected"] or 0,
            "rescues": due.rescues,
            "faults": due.faults,
            "waited": due.waited(now=now),
        },
    )
