"""Celery tasks of the fleet."""

from celery import shared_task

from kcover_portal.fleet.services import retention


@shared_task(name="fleet.prune")
def prune() -> None:
    """Deletes check results that agents no longer report."""
    retention.prune()
