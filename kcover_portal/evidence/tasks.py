"""Housekeeping of evidence."""

from celery import shared_task
from django.utils import timezone

from kcover_portal.evidence import services


@shared_task(name="evidence.prune")
def prune() -> None:
    """Deletes bundles that are too old or too many."""
    services.prune(now=timezone.now())
