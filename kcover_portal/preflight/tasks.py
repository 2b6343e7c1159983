"""Celery tasks of preflight."""

import logging
from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.services import cluster_turns
from kcover_portal.kube.errors import KubeError
from kcover_portal.lib import doorbell
from kcover_portal.preflight import queries, services
from kcover_portal.preflight.services import gate_labels, pair_runs, pair_schedule

log = logging.getLogger(__name__)
ROUND_LEASE = timedelta(minutes=2)  # longer than a round may take
READ_EVERY = 10.0  # seconds
MAX_ANNOUNCED = 50  # expired runs of a cluster with an Event each, of one sweep
ANNOUNCED_WITHIN = 60.0  # seconds
READ_LEASE = timedelta(minutes=5)  # longer than a read may take


@shared_task(name="preflight.report_verdicts")
def report_verdicts() -> None:
    """Reports the faults of flagged nodes."""
    while services.report_verdicts(now=timezone.now()) >= services.MAX_VERDICTS:
        pass


@shared_task(name="preflight.sweep")
def sweep() -> None:
    """Ends runs past their deadline and reports faults whose wake-up was lost."""
    expired = [pk for pk in queries.expiring(now=timezone.now()) if services.expire(pk, now=timezone.now())]
    for cluster_id, runs in queries.by_cluster(expired).items():
        doorbell.ring("preflight.announce", cluster_id, *runs[:MAX_ANNOUNCED], expires=ANNOUNCED_WITHIN)
    report_verdicts()
    for pk in queries.plans_at_work(now=timezone.now()):
        doorbell.ring("preflight.advance_plan", pk)


@shared_task(name="preflight.announce")
def announce(cluster_id: int, *expired: int) -> None:
    """Writes Events about runs of one cluster that have expired. A cluster that hangs blocks only one worker thread."""
    with cluster_turns.turn("preflight events", cluster_id, ttl=ROUND_LEASE) as cluster:
        if cluster is not None:
            services.announce(cluster, expired, now=timezone.now())


@shared_task(name="preflight.advance_plan")
def advance_plan(plan_id: int) -> None:
    """Takes the pair tests of a plan one step further."""
    pair_runs.advance(plan_id, clock=timezone.now)


@shared_task(name="preflight.begin_scheduled")
def begin_scheduled() -> None:
    """Begins the pair tests that are due by the setting ``nccl_every``. A cluster that hangs blocks only one thread."""
    for pk in queries.clusters_with_scheduled_tests():
        doorbell.ring("preflight.begin_scheduled_in", pk, expires=pair_schedule.LOOK_EVERY)


@shared_task(name="preflight.begin_scheduled_in")
def begin_scheduled_in(cluster_id: int) -> None:
    """Begins those of one cluster, unless another worker looks at it."""
    with cluster_turns.turn("pair tests", cluster_id, ttl=ROUND_LEASE) as cluster:
        if cluster is not None:
            try:
                pair_schedule.begin_due(cluster, now=timezone.now())
            except KubeError as error:
                log.info("cluster %s: scheduled pair tests begin later: %s", cluster.name, error)


@shared_task(name="preflight.label_nodes")
def label_nodes() -> None:
    """Wakes a worker for each cluster whose nodes carry the preflight gate as a label."""
    for pk in queries.clusters_with_gate_labels():
        doorbell.ring("preflight.label_cluster", pk)


@shared_task(name="preflight.label_cluster")
def label_cluster(cluster_id: int) -> None:
    """One round of labels in one cluster, unless one is running. A cluster that hangs blocks only one worker thread."""
    with cluster_turns.turn("preflight labels", cluster_id, ttl=ROUND_LEASE) as cluster:
        if cluster is not None:
            gate_labels.write(cluster, clock=timezone.now)


@shared_task(name="preflight.read_objects")
def read_objects() -> None:
    """Wakes a worker for each cluster, to read its new ``PreflightReport`` objects."""
    for cluster in fleet.clusters():
        doorbell.ring("preflight.read_objects_of", cluster.pk, expires=READ_EVERY)


@shared_task(name="preflight.read_objects_of")
def read_objects_of(cluster_id: int) -> None:
    """Reads those of one cluster, unless a read is under way. A cluster that hangs blocks only one worker thread."""
    with cluster_turns.turn("preflight reports", cluster_id, ttl=READ_LEASE) as cluster:
        if cluster is not None:
            try:
                services.read_report_objects(cluster, now=timezone.now())
            except KubeError as error:
                log.warning("the PreflightReports of cluster %s cannot be read: %s", cluster.name, error)


@shared_task(name="preflight.prune")
def prune() -> None:
    """Deletes runs and plans that ended before the retention time."""
    services.prune(now=timezone.now())
    pair_runs.prune(now=timezone.now())
