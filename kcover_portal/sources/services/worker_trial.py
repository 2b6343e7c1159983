"""Tests of sources that a worker does, because the process that people reach cannot read the token."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from kcover import reasons
from kcover_portal import encryption
from kcover_portal.lib import doorbell
from kcover_portal.sources.models import Source, SourceTest
from kcover_portal.sources.services.trial import Trial, try_source

TEST: Final = "sources.test"
LONGEST: Final = timedelta(seconds=45)  # of a wait: an Ingress gives up after 60 s. No worker begins a test later
POLL_SECONDS: Final = 0.25
KEPT: Final = timedelta(hours=1)


def try_here_or_by_worker(
    source: Source, *, clock: Callable[[], datetime], wait: Callable[[float], None] = time.sleep
) -> Trial:
    """Tests the source; in a worker, if this process cannot read its token. Blocks for LONGEST at most."""
    if not encryption.is_out_of_reach(source, "token"):
        return try_source(source, now=clock())
    began = clock()
    SourceTest.objects.filter(asked_at__lt=began - KEPT).delete()
    row = SourceTest.objects.create(source=source, asked_at=began)
    doorbell.ring(TEST, row.pk, expires=LONGEST.total_seconds())
    while clock() - began < LONGEST:
        wait(POLL_SECONDS)
        row.refresh_from_db()
        if row.answered_at is not None:
            return Trial(ok=row.ok, seen=row.seen, lag_seconds=row.lag, error=row.why)
    return Trial(
        ok=False, seen=0, lag_seconds=source.lag, error=reasons.of("source_test_unanswered", wait=reasons.span(LONGEST))
    )


def answer(test: int, *, now: datetime) -> None:
    """Does a test that somebody still waits for."""
    waiting = SourceTest.objects.filter(pk=test, answered_at=None, asked_at__gt=now - LONGEST)
    row = waiting.select_related("source__cluster").first()
    if row is None:
        return
    trial = try_source(row.source, now=now)
    row.ok, row.seen, row.lag, row.answered_at = trial.ok, trial.seen, trial.lag_seconds, now
    row.error = trial.error.to_json() if trial.error is not None else {}
    row.save()
