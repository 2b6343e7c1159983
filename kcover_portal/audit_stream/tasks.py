"""Tasks of the workers. The sweep finds the sinks with records to receive."""

from celery import shared_task
from django.utils import timezone

from kcover_portal.audit_stream import services


@shared_task(name="audit_stream.sweep")
def sweep() -> None:
    """Wakes a worker for each sink that is due."""
    services.sweep(now=timezone.now())


@shared_task(name="audit_stream.deliver")
def deliver(sink_id: int) -> None:
    """Sends what one sink has not received."""
    services.deliver(sink_id, clock=timezone.now)
