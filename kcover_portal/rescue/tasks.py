"""The tasks of the workers. Each takes IDs and does what is due; the sweep makes up for a lost task.

Tasks that call a cluster run in the cluster's lane of the bulkhead.
"""

import time
from functools import partial
from typing import Any

from celery import shared_task
from django.conf import settings
from django.db import close_old_connections, connection
from django.db.models import Manager
from django.utils import timezone

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import services
from kcover_portal.rescue.engine import bulkhead, kube_events, standby_cleanup
from kcover_portal.rescue.models import Rescue, Step

COUNTED_EVERY = 5.0  # seconds between counts of the clusters

cluster_lanes = bulkhead.Bulkhead(settings.CELERY_WORKER_CONCURRENCY)
_rung = services.RecentRings()
_counted: tuple[float, int] = (-COUNTED_EVERY, 1)


def _in_lane(rows: Manager[Any], pk: int, work: bulkhead.Work, *, cluster: str = "cluster") -> None:
    """Does the work on a row in the lane of the row's cluster; ``cluster``: where the row has it."""
    global _counted
    if time.monotonic() - _counted[0] >= COUNTED_EVERY:
        _counted = (time.monotonic(), fleet.count_clusters())
    count = _counted[1]
    work = partial(_connected, work)
    lane = rows.filter(pk=pk).values_list(cluster, flat=True).first() if count > 1 else 0
    if lane is not None:
        cluster_lanes.run(lane, work, lanes=count)


def _connected(work: bulkhead.Work) -> None:
    """Does the work with a usable database connection, because the previous work in this thread may have broken it."""
    if not connection.in_atomic_block:
        close_old_connections()
    work()


@shared_task(name="rescue.decide")
def decide(incident_id: int) -> None:
    """Decides an incident, runs its rescue, then writes the Kubernetes Event."""
    _in_lane(Incident.objects, incident_id, partial(_decide, incident_id))


def _decide(incident_id: int) -> None:
    services.decide_and_run(incident_id, clock=timezone.now)
    seen = Incident.objects.select_related("node", "cluster").filter(pk=incident_id).first()
    if seen is not None:
        kube_events.incident(seen, now=timezone.now())


@shared_task(name="rescue.run")
def run(rescue_id: int) -> None:
    """Takes a rescue as far as possible now."""
    _in_lane(Rescue.objects, rescue_id, partial(services.run, rescue_id, clock=timezone.now))


@shared_task(name="rescue.nudge")
def nudge(node_id: int) -> None:
    """Lets a waiting rescue of the node check the node at once."""
    _in_lane(Node.objects, node_id, partial(_nudge, node_id))


def _nudge(node_id: int) -> None:
    node = Node.objects.filter(pk=node_id).first()
    if node is not None:
        services.nudge(node, now=timezone.now())


@shared_task(name="rescue.reconcile")
def reconcile() -> None:
    """Reconciles rows with nodes that have no open rescue."""
    services.reconcile(now=timezone.now())


@shared_task(name="rescue.withdraw")
def withdraw(step_id: int) -> None:
    """Withdraws the requests of a step that are not needed any more."""
    work = partial(services.withdraw, step_id, clock=timezone.now)
    _in_lane(Step.objects, step_id, work, cluster="rescue__cluster")


@shared_task(name="rescue.sweep")
def sweep() -> None:
    services.sweep(now=timezone.now(), rung=_rung)


@shared_task(name="rescue.tidy_standbys")
def tidy_standbys() -> None:
    """Gives back standbys that are reserved and not needed."""
    standby_cleanup.tidy(clock=timezone.now)
