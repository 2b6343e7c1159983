"""Celery tasks about tokens."""

from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from kcover_portal.accounts import services


@shared_task(name="accounts.prune")
def prune() -> None:
    """Deletes nodes' credentials that ended more than KCOVER_KEEP_DAYS ago."""
    services.prune(before=timezone.now() - timedelta(days=settings.KCOVER_KEEP_DAYS))
