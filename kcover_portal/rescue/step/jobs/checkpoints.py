"""Wait for the next checkpoint of the node's jobs, up to the rule's limit, before a step takes their work away.

A job's program writes the time of each checkpoint to an annotation of the job, or to a metric that the rule's query
reads. A job without either is not waited for. The time is compared only with the job's earlier one, so its clock does
not matter. A time that is unknown at first counts once it is later than the beginning of the wait. A fatal fault ends
every wait.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from kcover import reasons
from kcover.actions import moved_jobs as core
from kcover_portal.incidents import queries as incidents
from kcover_portal.rescue.step import plan_steps
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.jobs import checkpoint_times
from kcover_portal.rescue.step.outcomes import Wait
from kcover_portal.workloads.training_jobs import Job

POLL_SECONDS = 2.0
QUERY_POLL_SECONDS = 10.0  # between two rounds of queries
MAX_NAMES_SHOWN = 8  # jobs in a sentence


def wait(context: Context, jobs: Callable[[], Iterable[Job]]) -> Wait | None:
    """Returns the wait for a checkpoint of ``jobs``, those on the node now; None once the step may go on.

    The first step of a rescue that takes work away waits for all of them, and later ones do not wait again.
    """
    progress, args = context.step.progress_as(core.Progress), context.step.args_as(core.Args)
    if not args.checkpoint_seconds or progress.checkpoint_over is not None or _waited_before(context):
        return None
    since = progress.checkpoint_since or context.now
    until = since + timedelta(seconds=args.checkpoint_seconds)
    why = _why(context, jobs, since=since, until=until) if context.now < until and limit(context) else None
    if why is not None:
        poll = QUERY_POLL_SECONDS if args.checkpoint_query else POLL_SECONDS
        return Wait(min(poll, (until - context.now).total_seconds()), why)
    context.remember(checkpoint_since=since, checkpoint_over=context.now)
    return None


def _why(
    context: Context, jobs: Callable[[], Iterable[Job]], *, since: datetime, until: datetime
) -> reasons.Reason | None:
    """The reason to wait longer; None if every job has written a checkpoint since, or has none."""
    now_known = checkpoint_times.read(context, jobs())
    if context.step.progress_as(core.Progress).checkpoint_since is None:
        first = {job: since if isinstance(at, reasons.Reason) else at for job, at in now_known.items()}
        context.remember(checkpoint_since=since, checkpoints={job: at.isoformat() for job, at in first.items()})
    progress = context.step.progress_as(core.Progress)
    seen = {job: datetime.fromisoformat(at) for job, at in progress.checkpoints.items()}
    due, unknown = [], {}
    for job, at in sorted(now_known.items()):
        if job not in seen:
            continue
        if isinstance(at, reasons.Reason):
            unknown[job] = at
        elif at <= seen[job]:
            due.append(job)
    end = reasons.moment(until)
    waits = reasons.of("checkpoint_waits", jobs=reasons.named(due, most=MAX_NAMES_SHOWN), until=end) if due else None
    if not unknown:
        return waits
    why = next(iter(unknown.values()))
    named = reasons.named(list(unknown), most=MAX_NAMES_SHOWN)
    return reasons.both(waits, reasons.of("checkpoint_unknown", jobs=named, until=end, why=why))


def limit(context: Context) -> timedelta:
    """The longest wait of this step; zero for none."""
    if incidents.has_fatal_fault(context.node) or _waited_before(context):
        return timedelta(0)
    return timedelta(seconds=context.step.args_as(core.Args).checkpoint_seconds)


def _waited_before(context: Context) -> bool:
    found = (step.typed_progress for step in plan_steps.before(context.steps, context.step))
    return any(isinstance(progress, core.Progress) and progress.checkpoint_over is not None for progress in found)
