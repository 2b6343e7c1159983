"""restart_jobs: the protected training jobs on the node begin anew elsewhere, by the deletion of all their pods.

kcover's recovery as its README promises it (semantics 1.4): a job is protected by kcover.io/cascading-recovery=true on
one of its pods or on itself; pods that are never restarted are left alone; the job object is not touched, its operator
makes the pods anew. The node is cordoned before, so that none comes back to it. Once a job within 30 s, whoever asks,
and that is kept in the database. No disruption budget is asked: the whole job is down with its one broken pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import IntegrityError, transaction

from kcover_portal.kube import port
from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import Done, Hold, Outcome, Wait
from kcover_portal.rescue.models import JobRestart

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
    """Finishes what was begun, then restarts what runs on the node and is protected."""
    node = marking.expect_isolated(context)
    if not node.unschedulable:
        return Hold("the node is schedulable, and the pods of a restarted job would come back to it")
    found = _jobs(context.kube.list_pods(node=context.node.name))
    waiting: list[str] = []
    for job, pods in found.items():
        if str(job) in context.step.progress.get("restarted", {}) or not _may_restart(context, pods):
            continue
        context.check_guards(destructive=True)
        if not _claim(context, job):
            waiting.append(str(job))
    for name, doomed in context.step.progress.get("restarted", {}).items():
        _delete(context, name, doomed)
    if waiting:
        return Wait(WINDOW.total_seconds() / 6, f"restarted less than {WINDOW.seconds} s ago: {_names(waiting)}")
    restarted = context.step.progress.get("restarted", {})
    left = [str(job) for job in found if str(job) not in restarted]
    note = f"restarted {_names(list(restarted))}" if restarted else "no protected job runs here"
    return Done(f"{note}; left alone: {_names(left)}" if left else note)


def _jobs(pods: Sequence[port.Pod]) -> dict[Job, list[port.Pod]]:
    """The jobs with pods that run on the node; those that are leaving or have ended ask for nothing."""
    found: dict[Job, list[port.Pod]] = {}
    for pod in pods:
        label = next((key for key in port.JOB_LABELS if pod.job and pod.labels.get(key) == pod.job), None)
        if label is not None and not (pod.deleting or pod.terminal):
            found.setdefault(Job(namespace=pod.namespace, label=label, name=pod.job), []).append(pod)
    return found


def _may_restart(context: Context, pods: Sequence[port.Pod]) -> bool:
    """Protected, and not of pods that nobody would make anew."""
    if any(pod.restart_policy == "Never" for pod in pods):
        return False
    return any(pod.labels.get(PROTECTED) == "true" for pod in pods) or _owner_is_protected(context, pods[0])


def _owner_is_protected(context: Context, pod: port.Pod) -> bool:
    """By the job's own label: Kubeflow does not copy it to the pods."""
    kinds = [one.kind for one in port.WORKLOADS.values() if pod.labels.get(one.pod_label) == pod.job]
    if pod.owner_name == pod.job and pod.owner_kind in port.WORKLOADS:
        kinds = [pod.owner_kind]
    return any(_is_protected(context, pod, kind) for kind in kinds)


def _is_protected(context: Context, pod: port.Pod, kind: str) -> bool:
    try:
        return context.kube.workload(pod.namespace, kind, pod.job).labels.get(PROTECTED) == "true"
    except port.NotFound:
        return False


def _claim(context: Context, job: Job) -> bool:
    """Takes the job's one restart of this window, and keeps which pods it means, before the first of them is deleted.

    What is finished after a crash is this restart; a pod that was made anew meanwhile has another uid and stays.
    """
    now = context.now
    pods = context.kube.list_pods(namespace=job.namespace, labels={job.label: job.name})
    doomed = {pod.name: pod.uid for pod in pods if not pod.deleting}
    where = {"cluster": context.cluster, "namespace": job.namespace, "job": job.name}
    kept = {**context.step.progress.get("restarted", {}), str(job): {"label": job.label, "pods": doomed}}
    try:
        with transaction.atomic():
            JobRestart.objects.filter(at__lt=now - FORGOTTEN).delete()
            taken = JobRestart.objects.filter(**where, at__lte=now - WINDOW).update(at=now, rescue=context.rescue)
            if not taken:
                if JobRestart.objects.filter(**where).exists():
                    return False
                JobRestart.objects.create(**where, at=now, rescue=context.rescue)
            context.remember(restarted=kept)
    except IntegrityError:  # another rescue took it in this moment
        return False
    return True


def _delete(context: Context, name: str, doomed: Mapping[str, Any]) -> None:
    """Deletes the pods of one job that are still there, by uid."""
    namespace, _, job = name.partition("/")
    there = context.kube.list_pods(namespace=namespace, labels={doomed["label"]: job})
    for pod in there:
        if pod.deleting or doomed["pods"].get(pod.name) != pod.uid:
            continue
        context.write(
            "delete",
            partial(context.kube.delete_pod, pod.namespace, pod.name, uid=pod.uid),
            subject=f"pod {pod.namespace}/{pod.name}",
            destructive=True,
            data={"uid": pod.uid, "job": name},
        )


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(sorted(names)[:NAMED]) + more
