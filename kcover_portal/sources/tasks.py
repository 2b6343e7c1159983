"""Maintenance of what sources have sent."""

from celery import shared_task
from django.utils import timezone

from kcover_portal.sources import services


@shared_task(name="sources.prune")
def prune() -> None:
    """Forgets events that are too old to be repeated."""
    services.prune(now=timezone.now())
