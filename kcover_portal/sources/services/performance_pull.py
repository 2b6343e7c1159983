"""Reads the performance of jobs from Prometheus. A drop that follows one node is an application fault of that node.

It is advice: a program can be slow for reasons of its own, so no guard counts it, and only a rule that names its code
acts on it.
"""

from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from kcover import reasons
from kcover.faults.device import named
from kcover.faults.weight import Weight
from kcover.jobs.performance import Limits
from kcover.sources import job_series, prometheus_samples
from kcover.sources.observation import Observation, ObservationBatch, Rejected
from kcover_portal.jobs import queries as jobs, services as job_services
from kcover_portal.jobs.models import JobPerformance
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import intake, prometheus_pull, pull_position
from kcover_portal.sources.services.pull_position import Clock
from kcover_portal.sources.services.pull_request import NotRead

INTERVAL_SECONDS: Final = 30
_DEFAULT: Final = Limits()


def read(source: Source, *, clock: Clock) -> bool:
    """Reads one value of each series and judges the jobs. Returns False: one reading is all there is."""
    now = clock()
    series, rejected = _read(source, now=now)
    running = jobs.running(source.cluster, now=now)
    if isinstance(running, reasons.Reason):
        raise NotRead(running)
    with transaction.atomic():
        reader = job_services.PerformanceReader(
            cluster=source.cluster,
            source=source.name,
            asked=f"{source.url} {source.settings['query']}",
            is_rate=source.settings.get("measures") == "rate",
            limits=limits_of(source),
        )
        changes = reader.take(series, running, now=now)
        told = tuple(_observation(one, now=now) for one in changes)
        batch = ObservationBatch(observations=told, rejected=tuple(rejected))
        intake.take(source, prometheus_pull.news(source, batch), now=now)
        pull_position.store(source, {"rejected": prometheus_pull.rejected_names(batch)})
    return False


def limits_of(source: Source) -> Limits:
    """The limits by the settings of the source."""
    given = source.settings
    interval = given.get("interval", INTERVAL_SECONDS)
    return Limits(
        factor=1 + given.get("slower_by", round((_DEFAULT.factor - 1) * 100)) / 100,
        hold=timedelta(seconds=given.get("hold", _DEFAULT.hold.total_seconds())),
        warm_up=timedelta(seconds=given.get("warm_up", _DEFAULT.warm_up.total_seconds())),
        least=given.get("least", _DEFAULT.least),
        gap=max(_DEFAULT.gap, timedelta(seconds=3 * interval)),
    )


def seen(source: Source, *, since: timedelta, now: datetime) -> int:
    """The number of series about pods and jobs. Nothing is stored."""
    return len(_read(source, now=now)[0])


def _read(source: Source, *, now: datetime) -> tuple[list[job_series.JobSeries], list[Rejected]]:
    given = source.settings
    body = prometheus_pull.ask_for(source, given["query"], at=now)
    if why := prometheus_samples.left_out(body):  # the slow ones may be those that are missing
        raise NotRead(reasons.of("performance_partial", why=why))
    names = job_series.Names(
        namespace=given.get("namespace_label", job_series.NAMESPACE_LABELS),
        pod=given.get("pod_label", job_series.POD_LABELS),
        job=given.get("job_label", job_series.JOB_LABELS),
        shape=given.get("shape_label", job_series.SHAPE_LABELS),
    )
    return job_series.read(body, names=names, now=now)


def _observation(one: job_services.PerformanceChange, *, now: datetime) -> Observation:
    job, percent = f"{one.namespace}/{one.name}", round(100 * one.drop.speed)
    said = (
        f"{one.node} has {percent} % of the speed of its peers"
        if one.drop.of_peers
        else f"{percent} % of its usual speed since {one.node} is part of it"
    )
    return Observation(
        path="result",
        key="\n".join((one.kind, job, one.node, "slow" if one.opened else "normal", now.isoformat())),
        node=one.node,
        kind="pod",
        code=JobPerformance.SLOW,
        check=JobPerformance.SLOW,
        device=named(unit=f"job {job}"),
        message=f"{one.kind} {job}: {said}",
        weight=Weight.PROGRAM,  # a program may be slow by itself
        healthy=not one.opened,
        seen_at=now,
        advice=f"exclude for {one.kind} {job}: nodeAffinity kubernetes.io/hostname NotIn [{one.node}]",
    )
