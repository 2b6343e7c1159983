"""Withdraw requests of a rescue that are not needed any more, at once, and retry until it is done.

"At once" means as soon as no other call about the node is under way (``step.node_lock``). If that call is the one that
makes the request, and it hangs or its worker died in it, this may take as long as a lease.

A reboot is requested by a command to the node's agent or by a job. A command is a row: the transaction that ends the
rescue or skips the step withdraws it. A job is in the cluster: the same transaction gives the step's row a due date,
and the worker that claims it finds the job and deletes it, so neither a crash nor an API outage loses it. The worker
looks twice, because a call of the rescue's worker may still be under way when a person ends the rescue.

A validation of the node is rows as well, so it is cancelled like a command.

A command that an agent has fetched, or a job whose pod has started, cannot be revoked; the audit log records this.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from kcover import actions, audit, reasons
from kcover.actions import validate
from kcover.reasons import Reason
from kcover.values import back_off
from kcover.values.kube_names import ObjectName
from kcover_portal.config import log_context
from kcover_portal.fleet import queries as fleet, services as fleet_services
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step import errors, lease, node_lock, recheck_guards, validator
from kcover_portal.rescue.step.drivers import agent, job

log = logging.getLogger(__name__)

HOLD_POLL_SECONDS = 5.0  # between looks in paused and shadow mode, in which nothing is written
LOCK_POLL_SECONDS = 0.5  # between attempts while another call about the node is under way
CANNOT_RECALL = ("reboot", "reset_gpu")  # kinds of commands that take effect once the agent has fetched them


def revoke(rescue: Rescue, *, now: datetime, because: Reason, step: Step | None = None) -> Reason | None:
    """Withdraws the unanswered requests of the rescue, or of one step of it. Returns what to record.

    ``because``: for the agent. Part of the caller's transaction, which has just ended the rescue or the step: no worker
    requests anything after it.
    """
    requester = agent.requester(rescue.pk, None if step is None else step.index)
    withdrawn = fleet_services.withdraw_commands(requester, because=because, now=now)
    requests = [reasons.of("agent_command", command=str(pk)) for pk, kind in withdrawn if kind in CANNOT_RECALL]
    rows = _with_requests(rescue.steps.all() if step is None else rescue.steps.filter(pk=step.pk))
    requests += [
        reasons.of("reboot_job", job=str(own)) for row in rows if row.leftovers for own in _schedule(row, now=now)
    ]
    if any(row.name == validate.SPEC.name for row in rows):
        validator.registered().withdraw(rescue, because=because, now=now)
    return reasons.of("requests_withdrawn", requests=tuple(requests)) if requests else None


def withdraw(step_id: int, *, clock: Callable[[], datetime]) -> None:
    """Deletes the jobs of a step that is due for withdrawal.

    Does nothing if the step is not due or another worker has it.
    """
    now = clock()
    if not Step.objects.filter(pk=step_id, withdraw_at__lte=now).update(withdraw_at=now + lease.TIME):
        return
    step = Step.objects.select_related("rescue__node", "rescue__cluster").get(pk=step_id)
    with log_context.bound(rescue=step.rescue.pk, node=step.rescue.node.name, cluster=step.rescue.cluster.name):
        _withdraw_due(step, clock=clock, now=now)


def _withdraw_due(step: Step, *, clock: Callable[[], datetime], now: datetime) -> None:
    mode, why = fleet.mode_now(step.rescue.cluster)
    if mode in fleet.MODES_WITHOUT_WRITES:
        _retry_later(step, seconds=HOLD_POLL_SECONDS, why=recheck_guards.silent(mode, why), failed=False, now=now)
        return
    try:
        found = [_delete(step, own, clock=clock) for own in step.leftovers]
    except node_lock.Busy as other:
        _retry_later(step, seconds=LOCK_POLL_SECONDS, why=other.reason, failed=False, now=clock())
        return
    except port.KubeError as error:
        if isinstance(error, port.RefusedByServer) and clock() > _calls_end_at(step) + timedelta(
            seconds=job.DEADLINE_SECONDS
        ):
            gave_up = reasons.of("withdraw_gave_up", error=str(error))
            _write(step, withdraw_at=None, withdrawal={**_withdrawal(step), "done": True}, because=gave_up)
            return
        log.warning("%s: %s is not withdrawn yet: %s", step.rescue.cluster.name, step.rescue, error)
        failures = int(_withdrawal(step).get("failures", 0))
        seconds = back_off.retry_seconds(failures + 1)
        _retry_later(step, seconds=seconds, why=errors.reason_of(error), failed=True, now=clock())
        return
    _note_withdrawn(step, [deleted for deleted in found if deleted is not None], now=clock())


def _with_requests(steps: QuerySet[Step]) -> list[Step]:
    """The steps that requested, or may have requested, a job or a validation."""
    requesting = actions.names(lambda spec: spec.leaves_jobs or spec.name == validate.SPEC.name)
    return list(steps.filter(name__in=requesting).exclude(state__in=("done", "pending")))


def _schedule(step: Step, *, now: datetime) -> tuple[ObjectName, ...]:
    """Makes the step due for withdrawal; returns its jobs."""
    # Until then a call that was under way when the rescue was ended may yet create the job.
    until = (now + lease.TIME).isoformat()
    Step.objects.filter(pk=step.pk).update(
        withdraw_at=now, progress=step.with_progress(withdrawal={"until": until, "failures": 0})
    )
    doorbell.ring("rescue.withdraw", step.pk)
    return step.leftovers


def _delete(step: Step, own: ObjectName, *, clock: Callable[[], datetime]) -> Reason | None:
    """Deletes one job. Returns the result, None if the job does not exist. Raises Busy and the port's errors."""
    kube = fleet.connect(step.rescue.cluster)
    found = kube.job_state(own.namespace, own.name)
    if not found.exists or not job.is_of(found, step):
        return None  # another portal may have given its job this name
    deleted = reasons.of("job_had_run" if found.succeeded else "job_deleted", job=str(own))
    with node_lock.acquire(step.rescue.node, clock=clock) as lock:
        call = _call(step, own)
        _note(step, audit.ClusterCallBegun(**call), now=clock())
        try:
            lock.renew(now=clock())
            kube.delete_job(own.namespace, own.name)
        except (port.KubeError, node_lock.Busy) as error:
            failed = audit.ClusterCallFailed(because=errors.reason_of(error), held_back=False, **call)
            _note(step, failed, now=clock())
            raise
        removed = audit.JobRemoved(job=str(own), had_run=bool(found.succeeded))
        _note(step, audit.ClusterCallDone(answer=removed, **call), now=clock())
    return deleted


def _note_withdrawn(step: Step, deleted: list[Reason], *, now: datetime) -> None:
    """Records that the jobs are gone. After the last check, nothing can create them any more."""
    withdrawal, until = _withdrawal(step), _calls_end_at(step)
    jobs = [*withdrawal.get("jobs", ()), *(reason.to_json() for reason in deleted)]
    became = tuple(map(reasons.from_json, jobs)) or (reasons.of("no_job_found"),)
    _write(
        step,
        withdraw_at=None if now >= until else until,
        withdrawal={**withdrawal, "jobs": jobs, "done": now >= until},
        because=reasons.of("request_withdrawn", jobs=became),
    )


def _retry_later(step: Step, *, seconds: float, why: Reason, failed: bool, now: datetime) -> None:
    withdrawal = _withdrawal(step)
    failures = int(withdrawal.get("failures", 0)) + (1 if failed else 0)
    at = now + timedelta(seconds=seconds)
    _write(
        step,
        withdraw_at=at,
        withdrawal={**withdrawal, "failures": failures},
        because=reasons.of("withdraw_pending", why=why),
    )


def _write(step: Step, *, withdraw_at: datetime | None, withdrawal: dict[str, Any], because: Reason) -> None:
    Step.objects.filter(pk=step.pk).exclude(withdraw_at=None).update(
        withdraw_at=withdraw_at, progress=step.with_progress(withdrawal=withdrawal), because=because.to_json()
    )
    doorbell.publish("rescue", step.rescue_id, cluster=step.rescue.cluster.name)


def _calls_end_at(step: Step) -> datetime:
    """Until when a call that creates the job may be under way."""
    return datetime.fromisoformat(_withdrawal(step)["until"])


def _withdrawal(step: Step) -> Mapping[str, Any]:
    return step.progress_as(actions.JobsProgress).withdrawal


def _call(step: Step, own: ObjectName) -> dict[str, Any]:
    """The fields that every entry about the deletion of one job has."""
    return {
        "call": audit.Call.WITHDRAW,
        "target": f"job {own}",
        "node": step.rescue.node.name,
        "rescue": step.rescue_id,
        "step": step.index,
        "name": step.name,
    }


def _note(step: Step, act: audit.ClusterCall, *, now: datetime) -> None:
    ledger.record(step.rescue.cluster.name, act, actor="system", now=now)
