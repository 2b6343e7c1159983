"""Notify the owners of jobs before a step takes their work away, and after it.

The owner names a channel in an annotation of the job. The step only records it in the audit log, once; the notify app
sends the message, if an admin released the channel for owners. No step waits for a message.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.db import transaction

from kcover import audit, reasons
from kcover.actions import moved_jobs as core
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.jobs import checkpoint_times, checkpoints
from kcover_portal.rescue.step.outcomes import Done, Outcome
from kcover_portal.workloads.training_jobs import Job

MAX_JOBS = 50  # of one node, whose owners get messages


def notify_before(context: Context, jobs: Callable[[], Iterable[Job]]) -> None:
    """Records once, for each of ``jobs`` whose owner names a channel, that the step is about to take its work away.

    Raises HeldBack if a guard prevents the step; then no message is sent.
    """
    if context.step.progress_as(core.Progress).owners:
        return
    named = {checkpoint_times.key(job): job for job in jobs() if job.notify}
    if not named:
        return
    context.check_guards(destructive=True)
    named = dict(sorted(named.items())[:MAX_JOBS])
    minutes = int(checkpoints.limit(context).total_seconds()) // 60
    waited_for = checkpoint_times.read(context, named.values()) if minutes else {}
    acts = [
        audit.JobMoving(
            job=str(job),
            kind=job.kind,
            channel=job.notify,
            because=_before(context, minutes=minutes if name in waited_for else 0),
            **_about(context),
        )
        for name, job in named.items()
    ]
    owners = {name: {"job": str(job), "kind": job.kind, "channel": job.notify} for name, job in named.items()}
    _record(context, acts, owners=owners)


def _before(context: Context, *, minutes: int) -> reasons.Reason:
    write = reasons.of("owner_checkpoint", minutes=minutes) if minutes else None
    return reasons.both(reasons.of(f"owner_before_{context.step.name}"), write)


def notify_after(context: Context, outcome: Outcome) -> Outcome:
    """Records once that the step is done, for the owners who were notified before. Returns ``outcome``."""
    progress = context.step.progress_as(core.Progress)
    if isinstance(outcome, Done) and progress.owners and not progress.owners_notified:
        because = reasons.of(f"owner_after_{context.step.name}")
        acts = [
            audit.JobMoved(
                job=owner["job"],
                kind=owner["kind"],
                channel=owner["channel"],
                because=because,
                **_about(context),
            )
            for owner in progress.owners.values()
        ]
        _record(context, acts, owners_notified=True)
    return outcome


def _about(context: Context) -> dict[str, Any]:
    step = context.step
    return {"rescue": context.rescue.pk, "node": context.node.name, "step": step.index, "action": step.name}


def _record(context: Context, acts: Sequence[audit.Act], **progress: Any) -> None:
    """Stores progress and entries in one transaction, so that each owner gets each message exactly once."""
    with transaction.atomic():
        context.remember(**progress)
        drafts = [ledger.Draft(act=act, actor=f"rescue {context.rescue.pk}", at=context.now) for act in acts]
        ledger.append(context.cluster.name, drafts)
