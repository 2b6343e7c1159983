"""Celery tasks of orders about jobs. A lost call is found by the next sweep."""

import logging
from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from kcover_portal import doorbell
from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs import services
from kcover_portal.jobs.models import JobOrder
from kcover_portal.kube import port

log = logging.getLogger(__name__)
MOST_AT_ONCE = 50  # due orders for which one sweep wakes workers


@shared_task(name="jobs.run")
def run(pk: int) -> None:
    """Takes one order further."""
    services.run(pk, clock=timezone.now)


@shared_task(name="jobs.sweep")
def sweep() -> None:
    """Wakes a worker for each order that is due."""
    now = timezone.now()
    free = Q(lease_until=None) | Q(lease_until__lte=now)
    due = JobOrder.objects.filter(free, state=JobOrder.State.RUNNING, due_at__lte=now).order_by("due_at")
    for pk in due.values_list("pk", flat=True)[:MOST_AT_ONCE]:
        doorbell.ring("jobs.run", pk)


@shared_task(name="jobs.look")
def look() -> None:
    """Wakes a worker for each cluster, to look for jobs that run again or that somebody labelled for a restart."""
    for pk in Cluster.objects.values_list("pk", flat=True):
        doorbell.ring("jobs.look_in", pk)


@shared_task(name="jobs.look_in")
def look_in(cluster_id: int) -> None:
    """Looks in one cluster. A cluster that does not answer is reported by its own watch."""
    for cluster in Cluster.objects.filter(pk=cluster_id):
        try:
            services.look_for_returns(cluster, now=timezone.now())
            services.look_for_labels(cluster, now=timezone.now())
        except port.KubeError as error:
            log.info("cluster %s: jobs are not read: %s", cluster.name, error)


@shared_task(name="jobs.prune")
def prune() -> None:
    """Deletes orders that ended before the retention time."""
    services.prune(before=timezone.now() - timedelta(days=settings.KCOVER_KEEP_DAYS))
