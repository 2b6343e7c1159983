"""Restarts that no person orders: a failed pod of a protected job, or an Event that asks for it.

The label on the job is its owner's consent, so no rule is needed. The strictest of the installation's mode, the
cluster's mode and its ``job_recovery`` holds. A job that keeps failing is restarted ever later, and then a person is
asked.
"""

from datetime import datetime, timedelta

from django.db import IntegrityError
from django.db.models import Q, QuerySet

from kcover import reasons
from kcover.policy import modes
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs.models import JobOrder, PodFailure
from kcover_portal.jobs.services import orders
from kcover_portal.kube import port
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.step.jobs import job_window
from kcover_portal.workloads import training_jobs

ACTOR = "system"
RESTART_WINDOW = timedelta(hours=1)
MAX_RESTARTS_PER_JOB = 5  # of one job within RESTART_WINDOW; then a person is asked
EXPLAINED_WITHIN = timedelta(minutes=5)  # a fault of the node may be seen after the pod that it ended
OFF = "off"


def recover_pod(
    cluster: Cluster, pod: port.Pod, *, cause: str = JobOrder.Cause.POD, because: reasons.Reason, now: datetime
) -> JobOrder | None:
    """Orders the restart of a failed pod's job, if its owner consents.

    Returns None if there is nothing to do. Raises port.KubeError, and then it can be called again.
    """
    job = training_jobs.of_pod(fleet.connect(cluster), pod)
    if job is None or not job.protected or training_jobs.is_never_restarted(job, [pod]):
        return None
    return recover_job(cluster, job, cause=cause, because=because, now=now)


def recover(
    cluster: Cluster,
    *,
    namespace: str,
    kind: str,
    name: str,
    cause: str = JobOrder.Cause.POD,
    because: reasons.Reason,
    now: datetime,
) -> JobOrder | None:
    """Orders the restart of a protected job. As ``recover_pod``; raises JobUnknown for an unknown kind or job."""
    target = orders.read(cluster, kind=orders.kind_named(kind), namespace=namespace, name=name)
    if not target.job.protected:
        return None
    if training_jobs.is_never_restarted(target.job, target.pods):
        return None
    return recover_job(cluster, target.job, cause=cause, because=because, now=now)


def job_recovery(cluster: Cluster) -> str:
    """The cluster's setting: off, shadow, approve or enforce."""
    return cluster.job_recovery


def mode_of(cluster: Cluster) -> str:
    """The strictest mode that holds for restarts that no person orders."""
    recovery = job_recovery(cluster)
    return modes.strictest(fleet.mode_now(cluster)[0], "shadow" if recovery == OFF else recovery)


def recover_job(
    cluster: Cluster,
    job: training_jobs.Job,
    *,
    cause: str = JobOrder.Cause.POD,
    because: reasons.Reason,
    incident: int | None = None,
    now: datetime,
) -> JobOrder | None:
    """Orders the restart of a job whose owner consents. ``incident``: of the failed pod. As ``recover_pod``."""
    if job_recovery(cluster) == OFF:
        return None
    mine = JobOrder.objects.filter(cluster=cluster, namespace=job.namespace, kind=job.kind, name=job.name)
    restarted = job_window.restarts_of(cluster, namespace=job.namespace, kind=job.kind, name=job.name)
    open_now = mine.filter(state__in=(JobOrder.State.RUNNING, JobOrder.State.HELD), awaits_approval=False)
    if open_now.exists() or restarted.filter(at__gt=now - job_window.WINDOW).exists():
        return None
    state, why, due_at = JobOrder.State.RUNNING, None, now
    mode = mode_of(cluster)
    lately = mine.filter(cause__in=(JobOrder.Cause.POD, JobOrder.Cause.EVENT), requested_at__gt=now - RESTART_WINDOW)
    if mode in fleet.MODES_WITHOUT_WRITES:
        if lately.exists():
            return None
        state, why = JobOrder.State.SHADOW, reasons.of("job_shadow")
    elif mode == "approve":
        state, why = JobOrder.State.HELD, reasons.of("job_needs_approver")
    else:
        count = _unexplained(lately.exclude(state=JobOrder.State.SHADOW))
        if count >= MAX_RESTARTS_PER_JOB:
            state, why = JobOrder.State.HELD, reasons.of("job_crash_loop", count=count)
        elif count:
            due_at = now + job_window.WINDOW * 2 ** (count - 1)
            why = reasons.of("job_backs_off", count=count, until=reasons.moment(due_at))
    try:
        return orders.create(
            cluster,
            job,
            cause=cause,
            requested_by=ACTOR,
            requested_because=because,
            incident=incident,
            state=state,
            because=why,
            due_at=due_at,
            now=now,
        )
    except IntegrityError:  # another witness of the same failure was faster
        return None


def _unexplained(restarts: QuerySet[JobOrder]) -> int:
    """The restarts of one job that count towards a crash loop: those that no fault of a node explains.

    A node explains one failure: if the portal took it in hand, for a fault that is not the job's, while the container
    ended or soon after. The job should run elsewhere then, so a second failure on the same node counts.
    """
    ended = PodFailure.objects.filter(order__in=restarts).order_by("at").values_list("order", "cluster", "node", "at")
    explained: set[int | None] = set()
    nodes: set[str] = set()
    for order, cluster, node, at in ended:
        if order in explained or node in nodes:
            continue
        in_hand = Q(opened_at__lte=at + EXPLAINED_WITHIN) & (Q(closed_at=None) | Q(closed_at__gte=at))
        rescues = Rescue.objects.filter(in_hand, cluster=cluster, node__name=node).exclude(fault_kind__in=("", "pod"))
        if rescues.exclude(incidents__is_user_fault=True).exists():
            explained.add(order)
            nodes.add(node)
    return restarts.count() - len(explained)
