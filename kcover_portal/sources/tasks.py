"""Tasks of the workers: the sweep finds the sources to read."""

from celery import shared_task
from django.utils import timezone

from kcover_portal.sources import services


@shared_task(name="sources.sweep")
def sweep() -> None:
    """Wakes a worker for each source that is due, and ends what ended while its node was not Ready."""
    services.sweep(now=timezone.now())
    services.apply_held_passes(now=timezone.now())


@shared_task(name="sources.pull")
def pull(source_id: int) -> None:
    """Reads what is new of one source."""
    services.pull(source_id, clock=timezone.now)


@shared_task(name="sources.test")
def test(test_id: int) -> None:
    """Tests a source for a process that cannot read its token."""
    services.answer_test(test_id, now=timezone.now())


@shared_task(name="sources.prune")
def prune() -> None:
    """Forgets events that are too old to be repeated."""
    services.prune(now=timezone.now())
