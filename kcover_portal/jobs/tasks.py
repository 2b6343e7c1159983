"""Celery tasks of orders about jobs. A lost call is found by the next sweep."""

import logging
from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_turns
from kcover_portal.jobs import queries, services
from kcover_portal.jobs.services.recovered_jobs import LOOK_EVERY
from kcover_portal.kube import port
from kcover_portal.lib import doorbell

log = logging.getLogger(__name__)
MAX_ORDERS_PER_SWEEP = 50  # due orders for which one sweep wakes workers
LOOK_LEASE = timedelta(minutes=5)  # longer than a look may take


@shared_task(name="jobs.run")
def run(pk: int) -> None:
    """Takes one order further."""
    services.run(pk, clock=timezone.now)


@shared_task(name="jobs.sweep")
def sweep() -> None:
    """Wakes a worker for each order that is due."""
    for pk in queries.claimable_orders(now=timezone.now()).values_list("pk", flat=True)[:MAX_ORDERS_PER_SWEEP]:
        doorbell.ring("jobs.run", pk)


@shared_task(name="jobs.look")
def look() -> None:
    """Wakes a worker for each cluster, to look for jobs that run again or that somebody labelled for a restart."""
    for pk in Cluster.objects.values_list("pk", flat=True):
        doorbell.ring("jobs.look_in", pk, expires=LOOK_EVERY)


@shared_task(name="jobs.look_in")
def look_in(cluster_id: int) -> None:
    """Looks in one cluster, unless a look is under way. A cluster that does not answer is reported by its own watch."""
    with cluster_turns.turn("jobs", cluster_id, ttl=LOOK_LEASE) as cluster:
        if cluster is not None:
            try:
                services.look_for_returns(cluster, now=timezone.now())
                services.look_for_labels(cluster, now=timezone.now())
            except port.KubeError as error:
                log.info("cluster %s: jobs are not read: %s", cluster.name, error)


@shared_task(name="jobs.prune")
def prune() -> None:
    """Deletes orders that ended before the retention time."""
    services.prune(now=timezone.now())
