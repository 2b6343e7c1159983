"""What workers are woken for about the fleet. A lost call is found by the next round of the same name in the plural."""

import uuid
from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from kcover_portal import doorbell
from kcover_portal.fleet import queries, services
from kcover_portal.fleet.services import checking, labelling

LABELLED_EVERY = timedelta(seconds=8)  # a little less than the beat


@shared_task(name="fleet.advance_run")
def advance_run(run_id: int) -> None:
    """Takes a run of checks one step on."""
    checking.advance(run_id, now=timezone.now())


@shared_task(name="fleet.advance_runs")
def advance_runs() -> None:
    """Takes every run of checks on: who did not answer in time is found here."""
    for pk in queries.runs_going_on():
        doorbell.ring("fleet.advance_run", pk)


@shared_task(name="fleet.label_nodes")
def label_nodes() -> None:
    """One round of Autopilot's labels in each cluster that asks for them; one at a time in a cluster."""
    for cluster in queries.clusters_with_labels():
        now = timezone.now()
        if services.lead(f"labels {cluster.pk}", holder=str(uuid.uuid4()), until=now + LABELLED_EVERY, now=now):
            labelling.write(cluster, clock=timezone.now)


@shared_task(name="fleet.prune")
def prune() -> None:
    """Forgets runs of checks that ended long ago."""
    checking.prune(before=timezone.now() - timedelta(days=settings.KCOVER_KEEP_DAYS))
