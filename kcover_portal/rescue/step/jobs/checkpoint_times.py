"""The last checkpoint of jobs: by the annotation, else by the rule's query, which another app can ask."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Protocol, TypeAlias

from kcover import reasons
from kcover.actions import moved_jobs as core
from kcover_portal.fleet.models import Cluster
from kcover_portal.rescue.step.context import Context
from kcover_portal.workloads.training_jobs import Job

Answer: TypeAlias = datetime | reasons.Reason  # the time of the last checkpoint, or the reason why it is unknown


class LookUp(Protocol):
    """Answers a rule's query for some jobs, by ``key``, within a few seconds. None: the job has no series."""

    def __call__(
        self, cluster: Cluster, jobs: Iterable[Job], *, query: str, source: str, now: datetime
    ) -> Mapping[str, Answer | None]: ...


_look_ups: list[LookUp] = []


def key(job: Job) -> str:
    """The kind, namespace and name of a job: jobs of two kinds may have the same name."""
    return f"{job.kind} {job}"


def look_up_with(function: LookUp) -> None:
    """Registers the function that answers queries. The app of the sources, which is above this one, does so."""
    _look_ups[:] = [function]


def read(context: Context, jobs: Iterable[Job]) -> dict[str, Answer]:
    """The answer for each job that has a checkpoint, or may have one, by ``key``.

    What was known when the step began to wait, and is not any more, is unknown.
    """
    listed, seen = list(jobs), context.step.progress_as(core.Progress).checkpoints
    found: dict[str, Answer | None] = {key(job): job.checkpoint for job in listed}
    args, others = context.step.args_as(core.Args), [job for job in listed if job.checkpoint is None]
    if args.checkpoint_query and others:
        for look_up in _look_ups:
            context.renew_if_needed()
            query, source = args.checkpoint_query, args.checkpoint_source
            answers = look_up(context.cluster, others, query=query, source=source, now=context.now)
            lost = reasons.of("checkpoint_lost")
            found |= {job: lost if answer is None and job in seen else answer for job, answer in answers.items()}
    return {job: answer for job, answer in found.items() if answer is not None}
