"""Celery entry points."""

from celery import shared_task
from django.utils import timezone

from kcover_portal.reports import lemon_repairs


@shared_task(name="reports.report_lemons")
def report_lemons() -> None:
    """Reports repairs of nodes that fail again and again, in the clusters that ask for it."""
    lemon_repairs.report_lemons(now=timezone.now())
