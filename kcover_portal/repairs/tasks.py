"""Tasks of the workers."""

from celery import shared_task
from django.utils import timezone

from kcover_portal.repairs import services


@shared_task(name="repairs.sweep")
def sweep() -> None:
    """Reports repairs for rescues that called a person, and follows the validation of returned machines.

    Writes the keys of new Jira issues into their repairs.
    """
    services.look_at_validations(now=timezone.now())
    services.report_escalated(now=timezone.now())
    services.note_keys(now=timezone.now())
    services.forget_deliveries(now=timezone.now())
