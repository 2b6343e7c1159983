"""Celery tasks about accounts: clean-up, and failed sign-ins in the audit log."""

from celery import shared_task
from django.utils import timezone

from kcover_portal.accounts import services
from kcover_portal.accounts.services import challenges, failed_attempts, parked_names, sessions, throttle


@shared_task(name="accounts.prune")
def prune() -> None:
    """Deletes nodes' credentials that ended more than KCOVER_KEEP_DAYS ago, silent parked nodes, ended sessions and
    old counters and challenges.
    """
    now = timezone.now()
    services.prune(now=now)
    parked_names.prune(now=now)
    sessions.prune(now=now)
    throttle.prune(now=now)
    challenges.prune(now=now)


@shared_task(name="accounts.record_failed_attempts")
def record_failed_attempts() -> None:
    """Writes the failed sign-ins that were counted since their last entry to the audit log."""
    failed_attempts.flush(now=timezone.now())
