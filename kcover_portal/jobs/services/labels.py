"""The label ``kcover.io/need-recovery=true`` on a job: a person's order to restart it now, cleared after acting."""

import logging
from datetime import datetime

from django.db import IntegrityError

from kcover import reasons
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs.models import JobOrder
from kcover_portal.jobs.services import orders, recovery
from kcover_portal.kube import port, training_jobs
from kcover_portal.kube.training_jobs import NEEDS_RECOVERY, PROTECTED

log = logging.getLogger(__name__)
ASKED_BY = f"label {NEEDS_RECOVERY}"


def look_for_labels(cluster: Cluster, *, now: datetime) -> list[JobOrder]:
    """Orders the restart of each job with the label. Raises port.KubeError if the cluster does not answer."""
    if recovery.mode_of(cluster) in fleet.SILENT:
        return []
    kube = fleet.connect(cluster)
    found = kube.workloads(labels={NEEDS_RECOVERY: "true"})
    made = (_order(cluster, kube, workload, now=now) for workload in found)
    return [order for order in made if order is not None]


def _order(cluster: Cluster, kube: port.Cluster, workload: port.Workload, *, now: datetime) -> JobOrder | None:
    job, _ = training_jobs.read(kube, workload.namespace, workload.kind, workload.name)
    pods = tuple(training_jobs.pods_of(kube, job))
    target = orders.Target(job=job, workload=workload, pods=pods)
    because: reasons.Reason | None = None
    state = JobOrder.State.RUNNING
    obstacles = list(orders.obstacles(target, JobOrder.Action.RESTART))
    if not training_jobs.is_protected(job, pods):
        obstacles.append(reasons.of("job_not_protected", label=PROTECTED))
    if obstacles:
        state, because = JobOrder.State.FAILED, reasons.both(*obstacles)
    elif recovery.mode_of(cluster) == "approve":
        state, because = JobOrder.State.HELD, reasons.of("job_needs_approver")
    if _is_told(cluster, job, state, because):
        return None
    try:
        return orders.create(
            cluster,
            job,
            cause=JobOrder.Cause.LABEL,
            asked_by=ASKED_BY,
            asked_because=reasons.of("job_label_set", label=NEEDS_RECOVERY),
            state=state,
            because=because,
            now=now,
        )
    except IntegrityError:
        return None


def _is_told(cluster: Cluster, job: training_jobs.Job, state: str, because: reasons.Reason | None) -> bool:
    """Returns whether the job's newest order says the same, or is under way and will clear the label."""
    newest = JobOrder.objects.filter(cluster=cluster, namespace=job.namespace, kind=job.kind, name=job.name).first()
    if newest is None:
        return False
    return newest.state == JobOrder.State.RUNNING or (newest.state == state and newest.why == because)
