"""Tasks of the workers."""

from datetime import timedelta
from typing import Final

from celery import shared_task
from django.utils import timezone

from kcover_portal.parts import services
from kcover_portal.runtime.services import leases

LEASE: Final = "parts.sweep"
LEASE_TIME: Final = timedelta(minutes=2)  # much longer than a sweep takes


@shared_task(name="parts.sweep")
def sweep() -> None:
    """Records parts of nodes whose inventory changed, and decides who has a part that two nodes report."""
    with leases.leading(LEASE, ttl=LEASE_TIME, clock=timezone.now) as leads:
        if not leads:  # a sweep under way would be joined by one more thread every 5 s, each with the same nodes
            return
        services.record_changed(now=timezone.now())
        services.settle_claims(now=timezone.now())
