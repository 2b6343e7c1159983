"""Celery tasks of the fleet."""

from celery import shared_task
from django.utils import timezone

from kcover_portal.fleet.services import foreign_cordons, pending_changes, stored_checks


@shared_task(name="fleet.prune")
def prune() -> None:
    """Deletes check results that agents no longer report, old cordons by others, and secrets that nobody confirmed."""
    stored_checks.prune()
    foreign_cordons.prune(now=timezone.now())
    pending_changes.forget_expired(now=timezone.now())


@shared_task(name="fleet.look_at_cordons")
def look_at_cordons() -> None:
    """Records cordons by others that began or ended."""
    foreign_cordons.look(now=timezone.now())
