"""Celery entry points."""

from celery import shared_task
from django.utils import timezone

from kcover_portal.needs import services


@shared_task(name="needs.prune")
def prune() -> None:
    """Deletes old acts about needs."""
    services.prune(now=timezone.now())
