"""Asks a cluster's Prometheus for the last checkpoint of jobs, for a step that waits for the next one.

One worker waits for the answers, so all queries of one look share a short time. A server that does not answer is asked
once. Only a source of the job's own cluster is asked, because a policy object of one cluster may name any source.
"""

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from kcover import checkpoint_query, reasons
from kcover.actions import moved_jobs
from kcover.sources import prometheus
from kcover.sources.observation import Unreadable
from kcover_portal import encryption
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube.training_jobs import Job
from kcover_portal.rescue.step.checkpoint_times import Answer
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import prometheus_pull
from kcover_portal.sources.services.pull_request import NotRead

SECONDS: Final = 3.0  # for all queries of one look


def look_up(
    cluster: Cluster, jobs: Iterable[Job], *, query: str, source: str, now: datetime
) -> Mapping[str, Answer | None]:
    """The last checkpoint of each job by namespace/name: None if there is no series, a reason if it is unknown."""
    row = _source(cluster, source)
    if isinstance(row, reasons.Reason):
        return {str(job): row for job in jobs}
    answers: dict[str, Answer | None] = {}
    until, silent = time.monotonic() + SECONDS, None
    for job in jobs:
        left = until - time.monotonic()
        if silent is not None or left <= 0:
            answers[str(job)] = silent or reasons.of("checkpoint_queries_late")
            continue
        asked = checkpoint_query.fill(query, namespace=job.namespace, job=job.name)
        try:
            body = prometheus_pull.ask_for(row, asked, at=now, seconds=left)
        except (NotRead, encryption.SecretUnreadable) as error:
            answers[str(job)] = silent = error.reason
            continue
        try:
            answers[str(job)] = prometheus.newest_moment(body, now=now)
        except Unreadable as error:
            answers[str(job)] = error.reason
    return answers


def _source(cluster: Cluster, name: str) -> Source | reasons.Reason:
    rows = Source.objects.filter(cluster=cluster, kind=Source.Kind.PROMETHEUS, enabled=True)
    found = list((rows.filter(name=name) if name else rows)[:2])
    if len(found) == 1:
        return found[0]
    if found:
        return reasons.of("checkpoint_source_many", key=moved_jobs.SOURCE)
    return reasons.of("checkpoint_source_unknown", source=name) if name else reasons.of("checkpoint_source_missing")
