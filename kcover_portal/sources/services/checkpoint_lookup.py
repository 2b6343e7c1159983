"""Asks a cluster's Prometheus for the last checkpoint of jobs, for a step that waits for the next one.

A worker waits for the answers. So all queries of one step share a short time limit, and a process runs few look-ups
concurrently. A source that did not answer is not queried again for a while. Only a source of the job's own cluster is
queried, because a policy object of one cluster may name any source.
"""

import threading
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from kcover import reasons
from kcover.actions import moved_jobs
from kcover.jobs import checkpoint_query
from kcover.sources import prometheus_samples
from kcover.sources.observation import Unreadable
from kcover_portal import encryption
from kcover_portal.fleet.models import Cluster
from kcover_portal.rescue.step.jobs.checkpoint_times import Answer, key
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import prometheus_pull
from kcover_portal.sources.services.pull_request import NotRead
from kcover_portal.workloads.training_jobs import Job

SECONDS: Final = 3.0  # for all queries of one look-up
MAX_CONCURRENT_LOOKS: Final = 2  # of a process: a server that hangs must not take the workers from the rescues
SILENT_FOR: Final = timedelta(seconds=30)  # after a query without an answer, its source is not asked

_places = threading.BoundedSemaphore(MAX_CONCURRENT_LOOKS)
_lock = threading.Lock()
_silent: dict[tuple[int, str], tuple[datetime, reasons.Reason]] = {}  # by key and address of the source


def look_up(
    cluster: Cluster, jobs: Iterable[Job], *, query: str, source: str, now: datetime
) -> Mapping[str, Answer | None]:
    """The last checkpoint of each job by ``checkpoint_times.key``: None if it has no series, a reason if unknown."""
    found = _source(cluster, source)
    if isinstance(found, Source):
        found = _silence(found, now=now) or found
    if isinstance(found, reasons.Reason):
        return {key(job): found for job in jobs}
    if not _places.acquire(blocking=False):
        return {key(job): reasons.of("checkpoint_queries_late") for job in jobs}
    try:
        return _ask(found, jobs, query=query, now=now)
    finally:
        _places.release()


def _ask(row: Source, jobs: Iterable[Job], *, query: str, now: datetime) -> Mapping[str, Answer | None]:
    answers: dict[str, Answer | None] = {}
    until, silent = time.monotonic() + SECONDS, None
    for job in jobs:
        left = until - time.monotonic()
        if silent is not None or left <= 0:
            answers[key(job)] = silent or reasons.of("checkpoint_queries_late")
            continue
        asked = checkpoint_query.fill(query, namespace=job.namespace, job=job.name)
        try:
            body = prometheus_pull.ask_for(row, asked, at=now, seconds=left)
        except (NotRead, encryption.SecretUnreadable) as error:
            answers[key(job)] = silent = error.reason
            if isinstance(error, NotRead):
                _note_silence(row, error.reason, now=now)
            continue
        try:
            answers[key(job)] = prometheus_samples.newest_moment(body, now=now)
        except Unreadable as error:
            answers[key(job)] = error.reason
    return answers


def _silence(source: Source, *, now: datetime) -> reasons.Reason | None:
    """The reason why the source gave no answer lately; None if it may be asked."""
    with _lock:
        at, why = _silent.get((source.pk, source.url), (None, None))
    return why if at is not None and timedelta(0) <= now - at < SILENT_FOR else None


def _note_silence(source: Source, why: reasons.Reason, *, now: datetime) -> None:
    with _lock:
        for old in [other for other, (at, _) in _silent.items() if now - at >= SILENT_FOR]:
            del _silent[old]
        _silent[source.pk, source.url] = now, why


def _source(cluster: Cluster, name: str) -> Source | reasons.Reason:
    rows = Source.objects.filter(cluster=cluster, kind=Source.Kind.PROMETHEUS, enabled=True)
    found = list((rows.filter(name=name) if name else rows)[:2])
    if len(found) == 1:
        return found[0]
    if found:
        return reasons.of("checkpoint_source_many", key=moved_jobs.SOURCE)
    return reasons.of("checkpoint_source_unknown", source=name) if name else reasons.of("checkpoint_source_missing")
