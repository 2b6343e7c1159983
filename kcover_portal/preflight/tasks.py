"""What workers do about preflight."""

from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from kcover_portal.preflight import queries, services


@shared_task(name="preflight.tell")
def tell() -> None:
    """Tells the incidents of flagged nodes, as many as there are."""
    while services.tell(now=timezone.now()) >= services.TOLD_AT_ONCE:
        pass


@shared_task(name="preflight.sweep")
def sweep() -> None:
    """Ends what did not become complete in time, and tells what nobody was woken for."""
    for pk in queries.expiring(now=timezone.now()):
        services.expire(pk, now=timezone.now())
    tell()


@shared_task(name="preflight.prune")
def prune() -> None:
    """Forgets runs that ended long ago."""
    services.prune(before=timezone.now() - timedelta(days=settings.KCOVER_KEEP_DAYS))
