"""What workers are woken for. Each takes ids, does what is due and forgets; a lost call is found by the sweep."""

from celery import shared_task
from django.utils import timezone

from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import services
from kcover_portal.rescue.services import announcing, standing_in


@shared_task(name="rescue.judge")
def judge(incident_id: int) -> None:
    """Judges an incident, runs the rescue that came of it, then tells the cluster's Events."""
    services.judge_and_run(incident_id, clock=timezone.now)
    seen = Incident.objects.select_related("node", "cluster").filter(pk=incident_id).first()
    if seen is not None:
        announcing.incident(seen, now=timezone.now())


@shared_task(name="rescue.run")
def run(rescue_id: int) -> None:
    """Takes a rescue as far as it goes now."""
    services.run(rescue_id, clock=timezone.now)


@shared_task(name="rescue.nudge")
def nudge(node_id: int) -> None:
    """Lets a waiting rescue of the node look at once."""
    node = Node.objects.filter(pk=node_id).first()
    if node is not None:
        services.nudge(node, now=timezone.now())


@shared_task(name="rescue.reconcile")
def reconcile() -> None:
    """Brings rows in step with nodes that no rescue looks at."""
    services.reconcile(now=timezone.now())


@shared_task(name="rescue.withdraw")
def withdraw(step_id: int) -> None:
    """Calls back what a step asked for and nobody wants any more."""
    services.withdraw(step_id, clock=timezone.now)


@shared_task(name="rescue.sweep")
def sweep() -> None:
    """Finds everything that is due."""
    services.sweep(now=timezone.now())


@shared_task(name="rescue.tidy_standbys")
def tidy_standbys() -> None:
    """Gives back the standbys that were promised and are not needed."""
    standing_in.tidy(now=timezone.now())
