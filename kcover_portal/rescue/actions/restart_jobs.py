"""restart_jobs: restart the protected training jobs of the node elsewhere, by deleting all their pods.

This is kcover's recovery as its README promises it (semantics 1.4). A job is protected by
``kcover.io/cascading-recovery=true`` on one of its pods or on itself. Pods that are never restarted are left alone. The
job object is not touched; its operator creates the pods again. The node is cordoned before, so that no pod comes back
to it. A job is restarted at most once within 30 s, over all rescues, as the database records. No disruption budget is
asked, because the whole job is down with its one broken pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import IntegrityError, transaction

from kcover import audit, reasons
from kcover.actions import restart_jobs as core
from kcover_portal.kube import port
from kcover_portal.rescue.models import JobRestart
from kcover_portal.rescue.step import node_marks
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.outcomes import Done, Hold, Outcome, Wait

PROTECTED = "kcover.io/cascading-recovery"
WINDOW = timedelta(seconds=30)  # kcover's: one restart a job
FORGOTTEN = timedelta(days=1)
NAMED = 8  # jobs named in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job, by the label that its pods carry."""

    namespace: str
    label: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def run(context: Context) -> Outcome:
    """Finishes the restarts that were begun, then restarts the protected jobs that run on the node."""
    node = node_marks.expect_isolated(context)
    if not node.unschedulable:
        return Hold(reasons.of("node_schedulable"))
    found = _jobs(context.kube.list_pods(node=context.node.name))
    waiting: list[str] = []
    for job, pods in found.items():
        if str(job) in context.step.progress_as(core.Progress).restarted or not _may_restart(context, pods):
            continue
        context.check_guards(destructive=True)
        if not _claim(context, job):
            waiting.append(str(job))
    for name, doomed in context.step.progress_as(core.Progress).restarted.items():
        _delete(context, name, doomed)
    if waiting:
        lately = reasons.of("restarted_lately", seconds=WINDOW.seconds, jobs=_names(waiting))
        return Wait(WINDOW.total_seconds() / 6, lately)
    restarted = context.step.progress_as(core.Progress).restarted
    left = [str(job) for job in found if str(job) not in restarted]
    done = reasons.of("jobs_restarted", jobs=_names(list(restarted))) if restarted else reasons.of("no_protected_job")
    return Done(reasons.both(done, reasons.of("jobs_left_alone", jobs=_names(left)) if left else None))


def _jobs(pods: Sequence[port.Pod]) -> dict[Job, list[port.Pod]]:
    """The jobs with pods that run on the node. Pods that are leaving or have ended do not count."""
    found: dict[Job, list[port.Pod]] = {}
    for pod in pods:
        label = next((key for key in port.JOB_LABELS if pod.job and pod.labels.get(key) == pod.job), None)
        if label is not None and not (pod.deleting or pod.terminal):
            found.setdefault(Job(namespace=pod.namespace, label=label, name=pod.job), []).append(pod)
    return found


def _may_restart(context: Context, pods: Sequence[port.Pod]) -> bool:
    """Returns whether the job is protected and something would create its pods again."""
    if any(pod.restart_policy == "Never" for pod in pods):
        return False
    return any(pod.labels.get(PROTECTED) == "true" for pod in pods) or _owner_is_protected(context, pods[0])


def _owner_is_protected(context: Context, pod: port.Pod) -> bool:
    """Returns whether the job object carries the label: Kubeflow does not copy it to the pods."""
    kinds = [workload.kind for workload in port.WORKLOADS.values() if pod.labels.get(workload.pod_label) == pod.job]
    if pod.owner_name == pod.job and pod.owner_kind in port.WORKLOADS:
        kinds = [pod.owner_kind]
    return any(_is_protected(context, pod, kind) for kind in kinds)


def _is_protected(context: Context, pod: port.Pod, kind: str) -> bool:
    try:
        return context.kube.workload(pod.namespace, kind, pod.job).labels.get(PROTECTED) == "true"
    except port.NotFound:
        return False


def _claim(context: Context, job: Job) -> bool:
    """Claims the job's only restart in this window, and stores its pods before the first one is deleted.

    After a crash this restart is completed. A pod that was created in the meantime has another UID and stays.
    """
    now = context.now
    pods = context.kube.list_pods(namespace=job.namespace, labels={job.label: job.name})
    doomed = {pod.name: pod.uid for pod in pods if not pod.deleting}
    where = {"cluster": context.cluster, "namespace": job.namespace, "job": job.name}
    kept = {**context.step.progress_as(core.Progress).restarted, str(job): {"label": job.label, "pods": doomed}}
    try:
        with transaction.atomic():
            JobRestart.objects.filter(at__lt=now - FORGOTTEN).delete()
            taken = JobRestart.objects.filter(**where, at__lte=now - WINDOW).update(at=now, rescue=context.rescue)
            if not taken:
                if JobRestart.objects.filter(**where).exists():
                    return False
                JobRestart.objects.create(**where, at=now, rescue=context.rescue)
            context.remember(restarted=kept)
    except IntegrityError:  # another rescue took it at the same moment
        return False
    return True


def _delete(context: Context, name: str, doomed: Mapping[str, Any]) -> None:
    """Deletes the stored pods of one job that are still there, by UID."""
    namespace, _, job = name.partition("/")
    remaining = context.kube.list_pods(namespace=namespace, labels={doomed["label"]: job})
    for pod in remaining:
        if pod.deleting or doomed["pods"].get(pod.name) != pod.uid:
            continue
        context.write(
            audit.Call.DELETE,
            partial(context.kube.delete_pod, pod.namespace, pod.name, uid=pod.uid),
            target=f"pod {pod.namespace}/{pod.name}",
            destructive=True,
            wanted=audit.PodRemoval(uid=pod.uid, job=name),
        )


def _names(names: Sequence[str]) -> reasons.Value:
    return reasons.named(sorted(names), most=NAMED)
