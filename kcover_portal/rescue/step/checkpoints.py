"""Wait for the next checkpoint of the node's jobs, up to the rule's limit, before a step takes their work away.

A job's program writes the time of each checkpoint to an annotation of the job. A job without one is not waited for. The
time is compared only with the job's earlier one, so its clock does not matter. A fatal fault ends every wait.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from kcover import reasons
from kcover.actions import moved_jobs as core
from kcover_portal.incidents import queries as incidents
from kcover_portal.kube.training_jobs import Job
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.outcomes import Wait

POLL_SECONDS = 2.0
NAMED = 8  # jobs in a sentence


def wait(context: Context, jobs: Callable[[], Iterable[Job]]) -> Wait | None:
    """Returns the wait for a checkpoint of ``jobs``, those on the node now; None once the step may go on.

    The first step of a rescue that takes work away waits for all of them, and later ones do not wait again.
    """
    progress = context.step.progress_as(core.Progress)
    longest = timedelta(seconds=context.step.args_as(core.Args).checkpoint_seconds)
    if not longest or progress.checkpoint_over is not None or _waited_before(context):
        return None
    written = {str(job): job.checkpoint for job in jobs() if job.checkpoint is not None}
    if progress.checkpoint_since is None:
        context.remember(checkpoint_since=context.now, checkpoints={job: at.isoformat() for job, at in written.items()})
        progress = context.step.progress_as(core.Progress)
    seen = {job: datetime.fromisoformat(at) for job, at in progress.checkpoints.items()}
    due = sorted(job for job, at in written.items() if job in seen and at <= seen[job])
    until = (progress.checkpoint_since or context.now) + longest
    if due and context.now < until and limit(context):
        waits = reasons.of("checkpoint_waits", jobs=reasons.named(due, most=NAMED), until=reasons.moment(until))
        return Wait(POLL_SECONDS, waits)
    context.remember(checkpoint_over=context.now)
    return None


def limit(context: Context) -> timedelta:
    """The longest wait of this step; zero for none."""
    if incidents.has_fatal_fault(context.node) or _waited_before(context):
        return timedelta(0)
    return timedelta(seconds=context.step.args_as(core.Args).checkpoint_seconds)


def _waited_before(context: Context) -> bool:
    before = context.rescue.steps.filter(index__lt=context.step.index)
    found = (step.typed_progress for step in before)
    return any(isinstance(progress, core.Progress) and progress.checkpoint_over is not None for progress in found)
