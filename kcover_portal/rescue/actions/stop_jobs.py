"""stop_jobs: stop the protected training jobs of the node, each as a whole, and wait until their pods have ended.

A job is suspended by the verb of its kind and stays so until its owner resumes it. Its object and its volumes stay.
Jobs that cannot be suspended, and those that Kueue would resume, are left alone; the drain moves their pods.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from kcover import reasons
from kcover.actions import stop_jobs as core
from kcover_portal.kube import port
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.jobs import checkpoints, owners
from kcover_portal.rescue.step.jobs.job_restart import MAX_NAMES_SHOWN, Restart, names
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, Hold, Outcome, Wait
from kcover_portal.workloads import training_jobs
from kcover_portal.workloads.training_jobs import Job

END_TIME_LIMIT = timedelta(minutes=15)  # as long as a restarted job may take
LOCAL_END_TIME_LIMIT = timedelta(minutes=2)  # then what still leaves this node is left to the next steps
POLL_SECONDS = 1.0


def run(context: Context) -> Outcome:
    """Finishes the stops that were begun, stops the protected jobs of the node, and waits for their pods to end."""
    return owners.notify_after(context, _stop(context))


def _stop(context: Context) -> Outcome:
    node_marks.expect_isolated(context)
    if _progress(context).since is None:
        if not _progress(context).stopped:
            owners.notify_before(context, lambda: _mine(context))
            waits = checkpoints.wait(context, lambda: _jobs_here(context))
            if waits is not None:
                return waits
        left = _stop_all(context)
        if not _progress(context).stopped:
            return Done(_with_left(reasons.of("no_protected_job"), left))
        context.remember(since=context.now, left=tuple(left))
    return _wait_for_end(context, _progress(context).since or context.now)


def _jobs_here(context: Context) -> dict[Job, list[port.Pod]]:
    return training_jobs.find(context.kube, context.kube.list_pods(node=context.node.name))


def _mine(context: Context) -> list[Job]:
    return [job for job in _jobs_here(context) if _may_stop(job)]


def _stop_all(context: Context) -> list[str]:
    """Stops what may be stopped, and returns the jobs that are left alone."""
    kube = context.kube
    found = _jobs_here(context)
    for job in found:
        stopped = _progress(context).stopped
        if Restart.is_kept(stopped, job) or not _may_stop(job):
            continue
        context.check_guards(destructive=True)
        context.remember(stopped=Restart.of(kube, job).kept_with(stopped))
    stopped = _progress(context).stopped
    for restart in Restart.kept(stopped):
        restart.stop(kube, context.write)
    left = [job for job in found if not Restart.is_kept(stopped, job) and (job.label or job.protected)]
    return names(left, among=found)


def _may_stop(job: Job) -> bool:
    return job.protected and job.known.stop is not port.JobMethod.NONE and not job.queue


def _wait_for_end(context: Context, since: datetime) -> Outcome:
    """Done once the pods have ended. Those that leave this node for long are the next steps' concern."""
    waited, here = context.now - since, context.node.name
    left = [pod for stop in Restart.kept(_progress(context).stopped) for pod in stop.not_ended(context.kube)]
    named = reasons.named(sorted(f"{pod.namespace}/{pod.name}" for pod in left), most=MAX_NAMES_SHOWN)
    done = reasons.of("jobs_stopped", jobs=_names(_progress(context).stopped))
    if not left:
        return Done(_with_left(done, _progress(context).left))
    if waited >= LOCAL_END_TIME_LIMIT and all(pod.deleting and pod.node == here for pod in left):
        return Done(_with_left(reasons.both(done, reasons.of("pods_not_ended", pods=named)), _progress(context).left))
    if waited >= END_TIME_LIMIT:
        minutes = int(END_TIME_LIMIT.total_seconds() // 60)
        return Hold(reasons.of("job_not_stopped", minutes=minutes, pods=named))
    return Wait(POLL_SECONDS, reasons.of("job_stops", pods=named))


def _progress(context: Context) -> core.Progress:
    return context.step.progress_as(core.Progress)


def _with_left(done: reasons.Reason, left: list[str] | tuple[str, ...]) -> reasons.Reason:
    return reasons.both(done, reasons.of("jobs_not_stopped", jobs=_names(left)) if left else None)


def _names(jobs: list[str] | tuple[str, ...] | Mapping[str, object]) -> reasons.Value:
    return reasons.named(sorted(jobs), most=MAX_NAMES_SHOWN)
