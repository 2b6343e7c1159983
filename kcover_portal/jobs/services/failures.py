"""Failed pods of training jobs: a container (not an init container) that ended with reason ``Error``.

A container that its kubelet has started again is seen by the state before. Only jobs whose owner consented count. A
failure is stored once, however often its pod is shown, and is over once the job runs again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from kcover import reasons
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import storable_values
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs.models import PodFailure
from kcover_portal.jobs.services import recovery
from kcover_portal.kube import port
from kcover_portal.rescue.step.jobs import job_window
from kcover_portal.workloads import training_jobs

RECENT = timedelta(minutes=3)  # an older failure is over, as for kcover's Events
MAX_OPEN_OF_JOB = 1  # further failures of an attempt follow from the first one
MAX_OPEN_IN_CLUSTER = 256
MAX_EXIT_CODE = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedContainer:
    """A failed container of a protected job, and when it ended by its kubelet's clock."""

    job: training_jobs.Job
    pod: port.Pod
    container: str
    exit_code: int
    message: str
    at: datetime

    @property
    def key(self) -> str:
        """Its identity, also if the portal starts again."""
        return f"{self.pod.uid}/{self.container}/{self.at.isoformat()}"

    @property
    def text(self) -> str:
        """The failure in kcover's words."""
        pod = f"{self.pod.namespace}/{self.pod.name}"
        said = storable_values.text(self.message)[:700]
        return f"container {self.container} of pod {pod} terminated with error: {said}, exit code: {self.exit_code}"

    @property
    def because(self) -> reasons.Reason:
        """The reason why the job is restarted."""
        pod = f"{self.pod.namespace}/{self.pod.name}"
        return reasons.of("job_container_failed", container=self.container, pod=pod, exit_code=self.exit_code)


def newest_failure(pod: port.Pod, *, now: datetime) -> tuple[port.ContainerFailure, datetime] | None:
    """The latest failure of the pod's containers and its time; None if it is old, or the pod is leaving."""
    known = [(end, end.finished_at) for end in (*pod.failures, *pod.past_failures) if end.finished_at is not None]
    if pod.deleting or not known:
        return None
    failure, at = max(known, key=lambda pair: pair[1])
    return (failure, at) if now - at < RECENT else None


def failed(job: training_jobs.Job, pod: port.Pod, failure: port.ContainerFailure, at: datetime) -> FailedContainer:
    """The failure of a pod of this job."""
    code = max(-MAX_EXIT_CODE, min(failure.exit_code, MAX_EXIT_CODE))
    return FailedContainer(job=job, pod=pod, container=failure.name, exit_code=code, message=failure.message, at=at)


def within_bounds(cluster: Cluster, seen: Sequence[FailedContainer]) -> list[FailedContainer]:
    """The failures that get an incident: the first of each job, and no more of the cluster than it has room for.

    A namespace without any gets one all the same. Those that are stored already are among them, so that a repetition
    changes nothing.
    """
    rows = PodFailure.objects.filter(cluster=cluster, over_at=None)
    namespaces = set(rows.order_by().values_list("namespace", flat=True).distinct())
    total = rows.count()
    of_job: dict[tuple[str, str, str], int] = {}
    for place in rows.filter(name__in={one.job.name for one in seen}).values_list("namespace", "kind", "name"):
        of_job[place] = of_job.get(place, 0) + 1
    known = set(rows.filter(pod_uid__in={one.pod.uid for one in seen}).values_list("pod_uid", "container", "at"))
    found = []
    for one in sorted(seen, key=lambda it: it.at):
        place = one.job.namespace, one.job.kind, one.job.name
        if (one.pod.uid, one.container, one.at) in known:
            found.append(one)
            continue
        has_room = total < MAX_OPEN_IN_CLUSTER or one.job.namespace not in namespaces
        if has_room and of_job.get(place, 0) < MAX_OPEN_OF_JOB:
            of_job[place], total = of_job.get(place, 0) + 1, total + 1
            namespaces.add(one.job.namespace)
            found.append(one)
    return found


def not_stored(cluster: Cluster, seen: Sequence[FailedContainer]) -> list[FailedContainer]:
    """The failures that ``keep`` has not stored yet."""
    rows = PodFailure.objects.filter(cluster=cluster, pod_uid__in={one.pod.uid for one in seen})
    known = set(rows.values_list("pod_uid", "container", "at"))
    return [one for one in seen if (one.pod.uid, one.container, one.at) not in known]


def is_first(one: FailedContainer, pods: Sequence[port.Pod], *, now: datetime) -> bool:
    """Returns whether the failure says something about its node: ``pods`` are all of the job's.

    No pod on another node failed before or at the same second, and most of the other pods had come up.
    """
    others = [pod for pod in pods if pod.uid != one.pod.uid]
    ended = {pod.uid: newest_failure(pod, now=now) for pod in others}
    if any(
        end is not None and end[1] <= one.at and pod.node != one.pod.node
        for pod, end in zip(others, ended.values(), strict=True)
    ):
        return False
    came_up = sum(pod.ready or pod.phase == "Succeeded" or ended[pod.uid] is not None for pod in others)
    return 2 * came_up > len(others)


def firsts_before(cluster: Cluster, one: FailedContainer, *, now: datetime) -> list[str]:
    """The pods of the job that failed first on the same node in earlier attempts, the latest first."""
    rows = PodFailure.objects.filter(
        cluster=cluster,
        namespace=one.job.namespace,
        kind=one.job.kind,
        name=one.job.name,
        node=one.pod.node,
        first=True,
        seen_at__gt=now - PodFailure.WITNESS_WINDOW,
    )
    earlier = rows.exclude(pod_uid=one.pod.uid)  # a pod that failed twice made one attempt
    return list(earlier.order_by("-pk").values_list("pod", flat=True))


def keep(cluster: Cluster, seen: Sequence[FailedContainer], *, first: Collection[str], now: datetime) -> None:
    """Stores failures, each with the open incident of its node, if it has one. ``first``: keys; see ``is_first``."""
    names = {one.pod.node for one in seen}
    rows = Incident.objects.filter(
        cluster=cluster, node__name__in=names, kind="pod", code=PodFailure.CODE, state="open"
    )
    found: Mapping[str, int] = dict(rows.values_list("node__name", "pk"))
    PodFailure.objects.bulk_create(
        [
            PodFailure(
                cluster=cluster,
                namespace=one.job.namespace,
                kind=one.job.kind,
                name=one.job.name,
                pod=one.pod.name,
                pod_uid=one.pod.uid,
                container=one.container,
                node=one.pod.node,
                exit_code=one.exit_code,
                at=one.at,
                seen_at=now,
                first=one.key in first,
                incident_id=found.get(one.pod.node),
            )
            for one in seen
        ],
        ignore_conflicts=True,
    )


def restart(cluster: Cluster, seen: FailedContainer, *, now: datetime) -> bool:
    """Orders the restart of the failed container's job. Returns False if it must be tried again.

    There is nothing to do if the job was restarted after the failure, or if the failure led to an order before.
    """
    job = seen.job
    same = {"cluster": cluster, "namespace": job.namespace}
    mine = PodFailure.objects.filter(pod_uid=seen.pod.uid, container=seen.container, at=seen.at, **same)
    if mine.exclude(order=None, over_at=None).exists():
        return True
    restarts = job_window.restarts_of(cluster, namespace=job.namespace, kind=job.kind, name=job.name)
    if restarts.filter(at__gte=seen.at).exists():
        return True
    with transaction.atomic():
        incident = mine.values_list("incident", flat=True).first()
        order = recovery.recover_job(cluster, job, because=seen.because, incident=incident, now=now)
        if order is None:
            return recovery.job_recovery(cluster) == recovery.OFF
        open_now = PodFailure.objects.filter(kind=job.kind, name=job.name, order=None, over_at=None, **same)
        open_now.update(order=order)
    return True


def end(
    cluster: Cluster,
    *,
    namespace: str,
    kind: str,
    name: str,
    because: reasons.Reason,
    now: datetime,
    before: datetime | None = None,
) -> None:
    """Ends the failures of a job, as part of the caller's transaction, and closes the incidents that are left without.

    Failures that were seen after ``before`` stay open.
    """
    rows = PodFailure.objects.filter(cluster=cluster, namespace=namespace, kind=kind, name=name, over_at=None)
    if before is not None:
        rows = rows.filter(seen_at__lte=before)
    found = set(rows.exclude(incident=None).values_list("incident", flat=True))
    if not rows.update(over_at=now):
        return
    others = PodFailure.objects.filter(incident__in=found, over_at=None).values_list("incident", flat=True)
    incidents.close(sorted(found - set(others)), because=because, actor=recovery.ACTOR, now=now)
