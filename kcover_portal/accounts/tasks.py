"""What workers are woken for about tokens."""

from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from kcover_portal.accounts import services


@shared_task(name="accounts.prune")
def prune() -> None:
    """Forgets what nodes' credentials were long ago."""
    services.prune(before=timezone.now() - timedelta(days=settings.KCOVER_KEEP_DAYS))
