"""Tasks of the workers. The sweep finds what a lost call has missed."""

from celery import shared_task
from django.utils import timezone

from kcover_portal.notify import services


@shared_task(name="notify.sweep")
def sweep() -> None:
    """Collects new events, and finds everything that is due."""
    services.sweep(now=timezone.now())


@shared_task(name="notify.send")
def send(delivery_id: int) -> None:
    """Sends one delivery, if it is due."""
    services.send(delivery_id, clock=timezone.now)


@shared_task(name="notify.repeat")
def repeat() -> None:
    """Sends the open alerts of each Alertmanager again."""
    services.repeat(now=timezone.now())


@shared_task(name="notify.prune")
def prune() -> None:
    """Deletes old deliveries."""
    services.prune(now=timezone.now())
