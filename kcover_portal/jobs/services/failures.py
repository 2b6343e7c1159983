"""Failed pods of training jobs: a container (not an init container) that ended with reason ``Error`` (semantics 1.3).

The pods are looked at in rounds. A container that its kubelet has started again is seen by the state before.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from kcover import reasons
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs.models import JobOrder
from kcover_portal.jobs.services import recovery
from kcover_portal.kube import port
from kcover_portal.rescue.models import JobRestart

RECENT = timedelta(minutes=3)  # an older failure is over, as for kcover's Events


def look_for_failures(cluster: Cluster, *, now: datetime) -> list[JobOrder]:
    """Orders the restart of each protected job with a pod that failed a moment ago. Raises port.KubeError."""
    if recovery.job_recovery(cluster) == recovery.OFF:
        return []
    kube = fleet.connect(cluster)
    restarts = JobRestart.objects.filter(cluster=cluster, at__gt=now - RECENT)
    restarted = {(row.namespace, row.job): row.at for row in restarts}
    made: list[JobOrder] = []
    tried: set[tuple[str, str]] = set()
    for pod in _failed(kube, now=now):
        key = (pod.namespace, pod.job)
        failure = _newest(pod)
        if failure is None or key in tried or _at(failure) <= restarted.get(key, now - RECENT):
            continue
        tried.add(key)
        because = reasons.of(
            "job_container_failed",
            container=failure.name,
            pod=f"{pod.namespace}/{pod.name}",
            exit_code=failure.exit_code,
        )
        order = recovery.recover_pod(cluster, pod, because=because, now=now)
        if order is not None:
            made.append(order)
    return made


def _failed(kube: port.Cluster, *, now: datetime) -> Iterable[port.Pod]:
    """The pods of training jobs with a recent failure, by one list for each label."""
    for label in port.JOB_LABELS[:-1]:
        for pod in kube.list_pods(having=label):
            failure = _newest(pod)
            if failure is not None and not pod.deleting and now - _at(failure) < RECENT:
                yield pod


def _newest(pod: port.Pod) -> port.ContainerFailure | None:
    known = [failure for failure in (*pod.failures, *pod.past_failures) if failure.finished_at is not None]
    return max(known, key=_at, default=None)


def _at(failure: port.ContainerFailure) -> datetime:
    if failure.finished_at is None:
        raise ValueError("a failure without a time")
    return failure.finished_at
