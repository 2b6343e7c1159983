"""What workers are woken for about the fleet. A lost call is found by the next round of the same name in the plural."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from kcover_portal import doorbell
from kcover_portal.fleet import queries, services
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import checking, forgetting, labelling

DEEP_CHECKS = "deep checks"  # the lease of who begins them
WITHIN = timedelta(minutes=2)  # longer than a round may take


@shared_task(name="fleet.advance_run")
def advance_run(run_id: int) -> None:
    """Takes a run of checks one step on."""
    checking.advance(run_id, now=timezone.now())


@shared_task(name="fleet.advance_runs")
def advance_runs() -> None:
    """Takes every run of checks on: who did not answer in time is found here."""
    for pk in queries.runs_going_on():
        doorbell.ring("fleet.advance_run", pk)


@shared_task(name="fleet.deep_checks")
def deep_checks() -> None:
    """Begins the deep checks that are due, in each cluster that asks for Autopilot's labels."""
    every = timedelta(hours=settings.KCOVER_DEEP_CHECKS_HOURS)
    if not every:
        return
    with _leading(DEEP_CHECKS) as leads:
        for cluster in queries.clusters_with_labels() if leads else ():
            checking.begin_again(cluster, every=every, now=timezone.now())


@shared_task(name="fleet.label_nodes")
def label_nodes() -> None:
    """Wakes a round of Autopilot's labels in each cluster that asks for them."""
    for cluster in queries.clusters_with_labels():
        doorbell.ring("fleet.label_cluster", cluster.pk)


@shared_task(name="fleet.label_cluster")
def label_cluster(cluster_id: int) -> None:
    """One round in one cluster, unless one is under way: a cluster that hangs holds one thread and no more."""
    with _leading(f"labels {cluster_id}") as leads:
        for cluster in Cluster.objects.filter(pk=cluster_id) if leads else ():
            labelling.write(cluster, clock=timezone.now)


@contextmanager
def _leading(name: str) -> Iterator[bool]:
    """Whether this is the one worker at it: for the block, and no longer than WITHIN."""
    now, holder = timezone.now(), str(uuid.uuid4())
    leads = services.lead(name, holder=holder, until=now + WITHIN, now=now)
    try:
        yield leads
    finally:
        if leads:
            services.resign(name, holder=holder, now=timezone.now())


@shared_task(name="fleet.prune")
def prune() -> None:
    """Forgets runs of checks that ended long ago, and results that nobody will tell again."""
    now = timezone.now()
    checking.prune(before=now - timedelta(days=settings.KCOVER_KEEP_DAYS))
    forgetting.prune()
