"""Jobs that run again: their failures and incidents end, and so do the orders that waited for a person about them."""

import logging
from datetime import datetime

from django.db import transaction

from kcover import reasons
from kcover.values import shares
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs.models import JobOrder, PodFailure
from kcover_portal.jobs.services import declined_orders, failures, orders, recovery
from kcover_portal.kube import port
from kcover_portal.rescue.step.jobs import job_window
from kcover_portal.workloads import training_jobs

log = logging.getLogger(__name__)

MAX_JOBS_PER_LOOK = 50  # jobs that one look reads
LOOK_EVERY = 10  # seconds
PLACE = ("namespace", "kind", "name")  # of a job
Place = tuple[str, str, str]


def look_for_returns(cluster: Cluster, *, now: datetime) -> None:
    """Reads jobs that failed or wait for a person, and ends what is over. Raises port.Unavailable.

    Orders by hand that nobody approved in time end. One look reads MAX_JOBS_PER_LOOK jobs, as many of each namespace,
    and the next look reads the next ones.
    """
    declined_orders.expire(cluster, now=now)
    held = JobOrder.objects.filter(cluster=cluster, state=JobOrder.State.HELD)
    running = JobOrder.objects.filter(cluster=cluster, state=JobOrder.State.RUNNING)
    open_now = PodFailure.objects.filter(cluster=cluster, over_at=None)
    busy = set(running.values_list(*PLACE))
    places: list[Place] = [*open_now.order_by("pk").values_list(*PLACE), *held.order_by("pk").values_list(*PLACE)]
    left = [place for place in dict.fromkeys(places) if place not in busy]
    if left:
        kube = fleet.connect(cluster)
        turn = int(now.timestamp()) // LOOK_EVERY
        for place in shares.rotated(left, lambda one: one[0], most=MAX_JOBS_PER_LOOK, turn=turn):
            try:
                _look(cluster, kube, place, now=now)
            except port.Unavailable:
                raise
            except port.KubeError as error:
                log.info("cluster %s: job %s is not read: %s", cluster.name, "/".join(place), error)


def _look(cluster: Cluster, kube: port.Cluster, place: Place, *, now: datetime) -> None:
    namespace, kind, name = place
    try:
        job, workload = training_jobs.read(kube, namespace, kind, name)
    except port.NotFound:
        over, phase = reasons.of("job_gone"), port.Phase.SUCCEEDED
    else:
        found = _is_over(kube, job, workload)
        if found is None:
            return
        over, phase = found, workload.phase
    mine = JobOrder.objects.filter(cluster=cluster, namespace=namespace, kind=kind, name=name)
    with transaction.atomic():
        order = mine.filter(state=JobOrder.State.HELD).first()
        if order is not None and phase is port.Phase.RUNNING and not _was_restarted(cluster, order):
            return  # its pods are ready, but nobody restarted the job as a whole
        if order is not None and phase is not port.Phase.FAILED:  # else a person decides what becomes of the job
            orders.settle(order, JobOrder.State.DONE, over, actor=recovery.ACTOR, now=now)
        failures.end(cluster, namespace=namespace, kind=kind, name=name, because=over, now=now)


def _is_over(kube: port.Cluster, job: training_jobs.Job, workload: port.Workload) -> reasons.Reason | None:
    """The reason why the job's failures are over; None if they are not."""
    if workload.phase in (port.Phase.SUCCEEDED, port.Phase.FAILED):
        return reasons.of("job_ended")
    if workload.phase is not port.Phase.RUNNING:
        return None
    pods = [pod for pod in training_jobs.pods_of(kube, job) if pod.phase != "Succeeded"]
    runs = bool(pods) and all(pod.ready and not pod.deleting for pod in pods)
    return reasons.of("job_runs_again", job=str(job)) if runs else None


def _was_restarted(cluster: Cluster, order: JobOrder) -> bool:
    rows = job_window.restarts_of(cluster, namespace=order.namespace, kind=order.kind, name=order.name)
    return rows.filter(at__gt=order.requested_at).exists()
