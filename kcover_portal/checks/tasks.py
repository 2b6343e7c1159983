"""Celery tasks of checks.

If a call is lost, the next run of the task that wakes all (``advance_runs``, ``label_nodes``, ``look_at_jobs``)
repeats it.
"""

import logging
from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from kcover_portal.checks import queries, services
from kcover_portal.checks.models import Validation
from kcover_portal.checks.services import autopilot_labels, validations
from kcover_portal.checks.services.job_ends import LOOK_EVERY
from kcover_portal.config import log_context
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_turns
from kcover_portal.kube import port
from kcover_portal.lib import doorbell
from kcover_portal.runtime.services import leases

log = logging.getLogger(__name__)
DEEP_CHECKS = "deep checks"  # name of the lease
ROUND_LEASE = timedelta(minutes=2)  # longer than a round may take


@shared_task(name="checks.advance_run")
def advance_run(run_id: int) -> None:
    """Takes a check run one step further."""
    services.advance(run_id, now=timezone.now())


@shared_task(name="checks.advance_runs")
def advance_runs() -> None:
    """Wakes a worker for every check run, to find nodes that did not answer in time, and for validations."""
    for pk in queries.running():
        doorbell.ring("checks.advance_run", pk)
    for validation in queries.due_validations():
        if validation.run_id is None:
            doorbell.ring("checks.start_validation", validation.pk)
        else:
            doorbell.ring("checks.conclude_validation", validation.run_id)


@shared_task(name="checks.start_validation")
def start_validation(validation_id: int) -> None:
    """Begins the check run of a validation that waits."""
    validations.start(validation_id, now=timezone.now())


@shared_task(name="checks.conclude_validation")
def conclude_validation(run_id: int) -> None:
    """Gives the verdict of the validation whose check run has ended, if the run belongs to one."""
    validations.conclude(run_id, now=timezone.now())


@shared_task(name="checks.conclude_nccl")
def conclude_nccl(plan_id: int) -> None:
    """Gives the verdict of the validation whose NCCL tests have ended."""
    for run_id in Validation.objects.filter(nccl_plan=plan_id).exclude(run=None).values_list("run", flat=True):
        validations.conclude(run_id, now=timezone.now())


@shared_task(name="checks.deep_checks")
def deep_checks() -> None:
    """Begins the deep checks that are due, in each cluster with Autopilot's labels."""
    every = timedelta(hours=settings.KCOVER_DEEP_CHECKS_HOURS)
    if not every:
        return
    with leases.leading(DEEP_CHECKS, ttl=ROUND_LEASE, clock=timezone.now) as leads:
        for cluster in fleet.clusters_with_labels() if leads else ():
            with log_context.bound(cluster=cluster.name):
                services.begin_again(cluster, every=every, now=timezone.now())


@shared_task(name="checks.label_nodes")
def label_nodes() -> None:
    """Wakes a worker for each cluster with Autopilot's labels."""
    for cluster in fleet.clusters_with_labels():
        doorbell.ring("checks.label_cluster", cluster.pk)


@shared_task(name="checks.label_cluster")
def label_cluster(cluster_id: int) -> None:
    """One round of labels in one cluster, unless one is running. A cluster that hangs blocks only one worker thread."""
    with cluster_turns.turn("labels", cluster_id, ttl=ROUND_LEASE) as cluster:
        if cluster is not None:
            autopilot_labels.write(cluster, clock=timezone.now)


@shared_task(name="checks.look_at_jobs")
def look_at_jobs() -> None:
    """Wakes a worker for each cluster, to look for jobs that ended and whose owners ask for checks."""
    for pk in Cluster.objects.values_list("pk", flat=True):
        doorbell.ring("checks.look_at_jobs_in", pk, expires=LOOK_EVERY)


@shared_task(name="checks.look_at_jobs_in")
def look_at_jobs_in(cluster_id: int) -> None:
    """Looks in one cluster, unless a look is under way. A cluster that does not answer is reported by its watch."""
    with cluster_turns.turn("jobs that ask for checks", cluster_id, ttl=ROUND_LEASE) as cluster:
        if cluster is not None:
            try:
                services.look_at_jobs(cluster, now=timezone.now())
            except port.KubeError as error:
                log.info("cluster %s: jobs that ask for checks are not read: %s", cluster.name, error)


@shared_task(name="checks.prune")
def prune() -> None:
    """Deletes check runs that ended before the retention time."""
    now = timezone.now()
    validations.prune(now=now)
    services.prune(now=now)
    services.prune_jobs(now=now)
