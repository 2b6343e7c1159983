"""The tasks of the workers. Each takes IDs and does what is due; the sweep makes up for a lost task.

Tasks that call a cluster run in the cluster's lane of the bulkhead.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from celery import shared_task
from django.conf import settings
from django.db import close_old_connections, connection
from django.db.models import Manager
from django.utils import timezone

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.fleet.services import node_events
from kcover_portal.incidents.models import Incident
from kcover_portal.lib import doorbell
from kcover_portal.rescue import services
from kcover_portal.rescue.decide import policy_tries
from kcover_portal.rescue.decide.waiting_incidents import WaitingIncidents
from kcover_portal.rescue.engine import batch, bulkhead, kube_events, standby_cleanup
from kcover_portal.rescue.models import Probation, Rescue, Step

COUNT_INTERVAL_SECONDS = 5.0  # between counts of the clusters

cluster_lanes = bulkhead.Bulkhead(settings.CELERY_WORKER_CONCURRENCY)
_rung = services.RecentRings()
_waiting = WaitingIncidents()
_threads: dict[int, batch.Threads] = {}
_threads_lock = threading.Lock()
_counted: tuple[float, int] = (-COUNT_INTERVAL_SECONDS, 1)


def _in_lane(rows: Manager[Any], pk: int, work: bulkhead.Work, *, cluster: str = "cluster") -> None:
    """Does the work on a row in the lane of the row's cluster; ``cluster``: where the row has it."""
    lane = _lane_of(rows, pk, cluster=cluster)
    if lane is not None:
        _run_in(lane, work)


def _lane_of(rows: Manager[Any], pk: int, *, cluster: str = "cluster") -> int | None:
    """The lane of the row's cluster, 0 if there is only one cluster; None if the row is gone."""
    global _counted
    if time.monotonic() - _counted[0] >= COUNT_INTERVAL_SECONDS:
        _counted = (time.monotonic(), fleet.count_clusters())
    return rows.filter(pk=pk).values_list(cluster, flat=True).first() if _counted[1] > 1 else 0


def _run_in(lane: int, work: bulkhead.Work) -> None:
    cluster_lanes.run(lane, partial(_connected, work), lanes=_counted[1])


def _connected(work: bulkhead.Work) -> None:
    """Does the work with a usable database connection, because the previous work in this thread may have broken it."""
    if not connection.in_atomic_block:
        close_old_connections()
    work()


@shared_task(name="rescue.decide")
def decide(incident_id: int) -> None:
    """Decides an incident, and all that wait with it, runs their rescues, then writes the Kubernetes Events."""
    lane = _lane_of(Incident.objects, incident_id)
    if lane is not None:
        _waiting.add(lane, [incident_id])
        _run_in(lane, partial(_decide, lane))


def _decide(lane: int) -> None:
    while taken := _waiting.take(lane):
        threads = _threads_of(lane) if len(taken) > 1 else None
        left: list[int] = []
        try:
            left = services.decide_and_run(taken, clock=timezone.now, gate=_deciding(lane), threads=threads)
            _waiting.add(lane, left)
        finally:
            decided = [incident for incident in taken if incident not in left]
            events = threads.events if threads is not None else None
            kube_events.write_incidents(decided, threads=events, now=timezone.now())


@contextmanager
def _deciding(lane: int) -> Iterator[None]:
    """Lets another thread decide afterwards, while this one waits for the cluster."""
    try:
        with _waiting.deciding(lane):
            yield
    finally:
        following = _waiting.next_waiting(lane)
        if following is not None:
            doorbell.ring("rescue.decide", following)


def _threads_of(lane: int) -> batch.Threads:
    """The threads of a lane, which are started as they are needed. No cluster waits for another's."""
    with _threads_lock:
        if lane not in _threads:
            _threads[lane] = batch.Threads(
                calls=ThreadPoolExecutor(batch.MAX_CONCURRENT_CALLS, thread_name_prefix=f"calls-{lane}"),
                events=ThreadPoolExecutor(node_events.BATCH_EVENTS, thread_name_prefix=f"events-{lane}"),
            )
        return _threads[lane]


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


@shared_task(name="rescue.end_probation")
def end_probation(probation_id: int) -> None:
    """Ends a probation that is over, or that is to end early."""
    work = partial(services.carry_out_probation_end, probation_id, clock=timezone.now)
    _in_lane(Probation.objects, probation_id, work, cluster="node__cluster")


@shared_task(name="rescue.advance_try")
def advance_try(pk: int) -> None:
    """Takes a try of a policy one slice further."""
    policy_tries.advance(pk, clock=timezone.now)


@shared_task(name="rescue.advance_tries")
def advance_tries() -> None:
    """Wakes workers for the tries that wait or lost their worker, and deletes old ones."""
    policy_tries.prune(now=timezone.now())
    for pk in policy_tries.due(now=timezone.now()):
        doorbell.ring("rescue.advance_try", pk)


@shared_task(name="rescue.sweep")
def sweep() -> None:
    services.sweep(now=timezone.now(), rung=_rung)


@shared_task(name="rescue.tidy_standbys")
def tidy_standbys() -> None:
    """Gives back standbys that are reserved and not needed."""
    standby_cleanup.tidy(clock=timezone.now)
