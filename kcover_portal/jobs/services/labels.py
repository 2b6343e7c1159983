"""The label ``kcover.io/need-recovery=true`` on a job: a person's order to restart it now, cleared after acting."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from django.db import IntegrityError

from kcover import reasons
from kcover.values import shares
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs.models import JobOrder
from kcover_portal.jobs.services import orders, recovery
from kcover_portal.jobs.services.recovered_jobs import LOOK_EVERY
from kcover_portal.kube import port
from kcover_portal.workloads import training_jobs
from kcover_portal.workloads.training_jobs import NEEDS_RECOVERY, PROTECTED

log = logging.getLogger(__name__)
ASKED_BY = f"label {NEEDS_RECOVERY}"
MAX_NEW_JOBS_PER_LOOK = 15  # labelled jobs that one look reads
MAX_REPEATED_JOBS_PER_LOOK = 5  # of those whose order was refused or waits for a person
PERIOD = timedelta(hours=1)
MAX_ORDERS_PER_NAMESPACE = 60  # by label, of a namespace within PERIOD; anybody who may label jobs can give them
MAX_REFUSED_ORDERS_PER_NAMESPACE = 5  # of them


def look_for_labels(cluster: Cluster, *, now: datetime) -> list[JobOrder]:
    """Orders the restart of jobs with the label. Raises port.KubeError if the cluster does not answer.

    One look reads as many jobs of each namespace, and the next look reads the next ones.
    """
    if recovery.mode_of(cluster) in fleet.MODES_WITHOUT_WRITES:
        return []
    kube = fleet.connect(cluster)
    lately = _Lately(cluster, now=now)
    made = []
    labelled = kube.workloads(labels={NEEDS_RECOVERY: "true"})
    for workload in _chosen(cluster, _not_obeyed(cluster, labelled), lately, now=now):
        try:
            order = _order(cluster, kube, workload, lately, now=now)
        except port.Unavailable:
            raise
        except port.KubeError as error:
            log.info("cluster %s: %s %s is not read: %s", cluster.name, workload.kind, workload.name, error)
            continue
        if order is not None:
            lately.count(order)
            made.append(order)
    return made


class _Lately:
    """The orders by label within PERIOD, by namespace."""

    def __init__(self, cluster: Cluster, *, now: datetime) -> None:
        self._all: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        rows = JobOrder.objects.filter(cluster=cluster, cause=JobOrder.Cause.LABEL, requested_at__gt=now - PERIOD)
        for row in rows.only("namespace", "state"):
            self.count(row)

    def count(self, order: JobOrder) -> None:
        self._all[order.namespace] += 1
        self._refused[order.namespace] += order.state == JobOrder.State.FAILED

    def has_room(self, namespace: str, state: str = "") -> bool:
        """Returns whether the namespace may have another order, also if it ends in this state."""
        if state == JobOrder.State.FAILED and self._refused[namespace] >= MAX_REFUSED_ORDERS_PER_NAMESPACE:
            return False
        return self._all[namespace] < MAX_ORDERS_PER_NAMESPACE


def _not_obeyed(cluster: Cluster, labelled: Sequence[port.Workload]) -> list[port.Workload]:
    """The jobs without those whose label was obeyed and stays, because the portal may not change them.

    Once the owner has removed the label, it may be set again.
    """
    orders = JobOrder.objects.filter(cluster=cluster, label_stays=True)
    obeyed = {row.pk: row.restart.get("uid", "") for row in orders.only("restart")}
    if not obeyed:
        return list(labelled)
    present = {one.uid for one in labelled}
    orders.filter(pk__in=[pk for pk, uid in obeyed.items() if uid not in present]).update(label_stays=False)
    uids = set(obeyed.values())
    return [one for one in labelled if one.uid not in uids]


def _chosen(
    cluster: Cluster, found: Sequence[port.Workload], lately: _Lately, *, now: datetime
) -> Iterator[port.Workload]:
    """The jobs that this look reads: none with a running order, and few whose order exists already."""
    places = ("namespace", "kind", "name")
    running = set(JobOrder.objects.filter(cluster=cluster, state=JobOrder.State.RUNNING).values_list(*places))
    by_label = JobOrder.objects.filter(cluster=cluster, cause=JobOrder.Cause.LABEL)
    waiting = by_label.filter(state__in=(JobOrder.State.FAILED, JobOrder.State.HELD))
    repeated = set(waiting.filter(namespace__in={one.namespace for one in found}).values_list(*places))
    new: list[port.Workload] = []
    known: list[port.Workload] = []
    for one in found:
        place = one.namespace, one.kind, one.name
        if place not in running and lately.has_room(one.namespace):
            (known if place in repeated else new).append(one)
    turn = int(now.timestamp()) // LOOK_EVERY
    for jobs, most in ((new, MAX_NEW_JOBS_PER_LOOK), (known, MAX_REPEATED_JOBS_PER_LOOK)):
        yield from shares.rotated(jobs, lambda one: one.namespace, most=most, turn=turn)


def _order(
    cluster: Cluster, kube: port.Cluster, workload: port.Workload, lately: _Lately, *, now: datetime
) -> JobOrder | None:
    job, _ = training_jobs.read(kube, workload.namespace, workload.kind, workload.name)
    pods = tuple(training_jobs.pods_of(kube, job))
    target = orders.Target(job=job, workload=workload, pods=pods)
    because: reasons.Reason | None = None
    state = JobOrder.State.RUNNING
    obstacles = list(orders.obstacles(target, JobOrder.Action.RESTART))
    if not job.protected:
        obstacles.append(reasons.of("job_not_protected", label=PROTECTED))
    if obstacles:
        state, because = JobOrder.State.FAILED, reasons.both(*obstacles)
    elif recovery.mode_of(cluster) == "approve":
        state, because = JobOrder.State.HELD, reasons.of("job_needs_approver")
    if _is_recorded(cluster, job, state, because) or not lately.has_room(job.namespace, state):
        return None
    channel = training_jobs.owner_channel(kube, job) if state == JobOrder.State.FAILED else ""
    try:
        return orders.create(
            cluster,
            job,
            cause=JobOrder.Cause.LABEL,
            requested_by=ASKED_BY,
            requested_because=reasons.of("job_label_set", label=NEEDS_RECOVERY),
            state=state,
            because=because,
            channel=channel,
            now=now,
        )
    except IntegrityError:
        return None


def _is_recorded(cluster: Cluster, job: training_jobs.Job, state: str, because: reasons.Reason | None) -> bool:
    """Returns whether the job's newest order says the same, or is under way and will clear the label."""
    newest = JobOrder.objects.filter(cluster=cluster, namespace=job.namespace, kind=job.kind, name=job.name).first()
    if newest is None:
        return False
    return newest.state == JobOrder.State.RUNNING or (newest.state == state and newest.why == because)
