"""restart_jobs: restart the protected training jobs of the node elsewhere, each as a whole, and wait until they run.

This is kcover's recovery as its README describes it. A job is protected by ``kcover.io/cascading-recovery=true`` on
itself, on what owns it, or in the template of its pods. The job object is not touched; its operator creates the pods
again. The node is cordoned before, so that no pod comes back to it. A job is restarted at most once
within 30 s, over all rescues, as the database records. Disruption budgets are not checked, because one broken pod stops
the whole job. A job that Kueue's topology-aware scheduling placed is left alone: Kueue replaces its failed node.

The cluster's ``job_recovery`` holds as for restarts of failed pods: ``off`` and ``shadow`` leave all jobs alone,
``approve`` asks a person. A rescue that a person ordered is that person's word.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction

from kcover import reasons
from kcover.actions import restart_jobs as core
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.step import recheck_guards
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.jobs import checkpoints, job_window, owners
from kcover_portal.rescue.step.jobs.job_restart import MAX_NAMES_SHOWN, Restart, missing, names
from kcover_portal.rescue.step.jobs.restart_progress import RestartProgress
from kcover_portal.rescue.step.marks import node_marks, out_of_service
from kcover_portal.rescue.step.outcomes import Done, Hold, Outcome, Poll, Wait
from kcover_portal.workloads import training_jobs
from kcover_portal.workloads.training_jobs import PROTECTED as PROTECTED, Job

ENFORCE = Cluster.JobRecovery.ENFORCE
WINDOW = job_window.WINDOW
RESTART_TIME_LIMIT = timedelta(minutes=15)  # an image of 20 GB has been pulled by then
SCHEDULING_TIME_LIMIT = timedelta(minutes=2)  # a scheduler has tried every node by then
POLL_SECONDS = 1.0


def run(context: Context) -> Outcome:
    """Finishes the restarts that were begun, restarts the protected jobs of the node, and waits for all of them."""
    return owners.notify_after(context, _restart(context))


def _restart(context: Context) -> Outcome:
    node = node_marks.expect_isolated(context)
    if not node.unschedulable:
        return Hold(reasons.of("node_schedulable"))
    if _progress(context).since is None:
        if not _progress(context).restarted:
            if _recovery(context) != ENFORCE and (mine := _mine(context)) and not _may_recover(context):
                return Done(_forbidden(context, mine))
            owners.notify_before(context, lambda: _mine(context))
            waits = checkpoints.wait(context, lambda: _jobs_here(context))
            if waits is not None:
                return waits
        waiting, left, swapped = _restart_all(context)
        if waiting:
            lately = reasons.of("restarted_lately", seconds=WINDOW.seconds, jobs=_names(waiting))
            return Wait(WINDOW.total_seconds() / 6, lately)
        restarted = _progress(context).restarted
        if not restarted:
            return Done(_with_left(reasons.of("no_protected_job"), left, swapped))
        context.remember(since=context.now, left=tuple(left), swapped=tuple(swapped))
    return _wait_for_return(context, node, _progress(context).since or context.now)


def _jobs_here(context: Context) -> dict[Job, list[port.Pod]]:
    return training_jobs.find(context.kube, context.kube.list_pods(node=context.node.name))


def _mine(context: Context) -> list[Job]:
    return [job for job, pods in _jobs_here(context).items() if _may_restart(job, pods)]


def _restart_all(context: Context) -> tuple[list[str], list[str], list[str]]:
    """Restarts what may be restarted now. Returns the jobs that must wait, those that are left alone, and those of
    which Kueue replaces the node.
    """
    found = _jobs_here(context)
    waiting: list[Job] = []
    for job, pods in found.items():
        if Restart.is_kept(_progress(context).restarted, job) or not _may_restart(job, pods):
            continue
        context.check_guards(destructive=True)
        if _may_recover(context) and not _claim(context, job):
            waiting.append(job)
    restarted = _progress(context).restarted
    for restart in Restart.kept(restarted):
        restart.make(context.kube, context.write)
    # A StatefulSet without the label is nobody's training job.
    left = [job for job in found if not Restart.is_kept(restarted, job) and (job.label or job.protected)]
    swapped = [job for job in left if training_jobs.is_swapped(found[job])]
    alone = [job for job in left if job not in swapped]
    return names(waiting, among=found), names(alone, among=found), names(swapped, among=found)


def _recovery(context: Context) -> str:
    """The cluster's ``job_recovery``, read now."""
    rescue = context.rescue
    if rescue.origin == Rescue.Origin.MANUAL and rescue.requester_kind != Rescue.Requester.TOKEN:
        return ENFORCE
    return fleet.job_recovery_now(context.cluster)


def _may_recover(context: Context) -> bool:
    """Returns whether ``job_recovery`` lets the rescue restart jobs. Raises ApprovalNeeded."""
    recovery = _recovery(context)
    if recheck_guards.needs_approval(context.rescue, mode=recovery):
        raise recheck_guards.ApprovalNeeded(reasons.of("approve_step", step=context.step.name))
    return recovery not in fleet.MODES_WITHOUT_WRITES and recovery != Cluster.JobRecovery.OFF


def _forbidden(context: Context, jobs: Sequence[Job]) -> reasons.Reason:
    forbids = reasons.of("job_recovery_forbids", cluster=context.cluster.name, recovery=_recovery(context))
    return _with_left(forbids, names(jobs, among=jobs), [])


def _may_restart(job: Job, pods: Sequence[port.Pod]) -> bool:
    if training_jobs.is_never_restarted(job, pods) or training_jobs.is_swapped(pods):
        return False
    return job.protected


def _claim(context: Context, job: Job) -> bool:
    """Claims the job's only restart in this window, and stores its pods before the first one is deleted.

    After a crash this restart is completed. A pod that was created in the meantime has another UID and stays.
    """
    kept = Restart.of(context.kube, job).kept_with(_progress(context).restarted)
    with transaction.atomic():
        if not job_window.claim(
            context.cluster,
            job,
            because=reasons.of("job_on_faulty_node", node=context.node.name, rescue=context.rescue.pk),
            rescue=context.rescue,
            now=context.now,
        ):
            return False
        context.remember(restarted=kept)
    return True


def _wait_for_return(context: Context, node: port.Node, since: datetime) -> Outcome:
    """Done once every restarted job runs again. After a deadline a person is asked."""
    late: list[tuple[Restart, RestartProgress]] = []
    failed = None
    for restart in Restart.kept(_progress(context).restarted):
        phase, back = restart.look(context.kube)
        if phase is port.Phase.FAILED:
            failed = failed or reasons.of("job_failed_again", job=str(restart.job))
        if phase is port.Phase.RUNNING and not back.complete:
            late.append((restart, back))
    waited = context.now - since
    stuck = any(node.name in back.stuck_on for _, back in late)
    freed = _free_pods(context, node, stuck=stuck, ends=failed is not None or waited >= RESTART_TIME_LIMIT)
    return Hold(failed) if failed is not None else _how_far(context, late, waited=waited, freed=freed)


def _how_far(
    context: Context,
    late: Sequence[tuple[Restart, RestartProgress]],
    *,
    waited: timedelta,
    freed: reasons.Reason | None,
) -> Outcome:
    progress = _progress(context)
    done = _with_left(reasons.of("jobs_restarted", jobs=_names(progress.restarted)), progress.left, progress.swapped)
    if not late:
        return Done(done)
    what = reasons.both(*(missing(restart, back) for restart, back in late[:MAX_NAMES_SHOWN]), freed)
    if waited >= SCHEDULING_TIME_LIMIT and all(back.only_lacks_room for _, back in late):
        # The repair gives a node back, so waiting for room here could wait for itself.
        return Done(reasons.both(done, what, reasons.of("jobs_lack_room")))
    if waited >= RESTART_TIME_LIMIT:
        return Hold(
            reasons.both(reasons.of("jobs_not_back", minutes=int(RESTART_TIME_LIMIT.total_seconds() // 60)), what)
        )
    return Poll(POLL_SECONDS, what)


def _free_pods(context: Context, node: port.Node, *, stuck: bool, ends: bool) -> reasons.Reason | None:
    """Frees the pods that the node's dead kubelet does not end. Returns the reason to show; None if there is none.

    ``stuck``: pods of late jobs are still leaving this node. ``ends``: the step ends now, so the taint goes as well.
    """
    silent = stuck and out_of_service.is_silent(node)
    since = _progress(context).silent_since
    if silent != (since is not None):
        since = context.now if silent else None
        context.remember(silent_since=since)
    if since is not None and not ends:
        return out_of_service.free(context, node, silent_since=since)
    out_of_service.take_back(context, node)
    if since is None or out_of_service.is_down(context, node, silent_since=since):
        return None
    return reasons.of("reboot_not_proved", node=node.name)


def _progress(context: Context) -> core.Progress:
    return context.step.progress_as(core.Progress)


def _with_left(done: reasons.Reason, left: Sequence[str], swapped: Sequence[str]) -> reasons.Reason:
    alone = reasons.of("jobs_left_alone", jobs=_names(left)) if left else None
    return reasons.both(done, alone, reasons.of("jobs_swapped", jobs=_names(swapped)) if swapped else None)


def _names(jobs: Sequence[str] | Mapping[str, object]) -> reasons.Value:
    return reasons.named(sorted(jobs), most=MAX_NAMES_SHOWN)
