"""Housekeeping of incidents."""

from celery import shared_task
from django.utils import timezone

from kcover_portal.incidents import services


@shared_task(name="incidents.prune")
def prune() -> None:
    """Deletes old batch ids."""
    services.prune(now=timezone.now())


@shared_task(name="incidents.suspect_gpus")
def suspect_gpus() -> None:
    """Looks for GPUs on which many programs fail."""
    services.suspect_gpus(now=timezone.now())
