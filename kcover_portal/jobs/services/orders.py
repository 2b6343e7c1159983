"""Orders of people and programs: the conditions that refuse an order, and the row that a worker carries out."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from django.db import IntegrityError, transaction

from kcover import audit, reasons
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs.models import JobOrder
from kcover_portal.jobs.services import excluded_nodes, order_approval, order_guards
from kcover_portal.kube import port, reasons as kube_reasons
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import Refused
from kcover_portal.rescue.step import recheck_guards
from kcover_portal.workloads import training_jobs

ALIASES = {"vcjob": "VolcanoJob", "sts": "StatefulSet", "lws": "LeaderWorkerSet"}


class OrderRefused(Refused):
    """Something is in the way of the order."""


class JobUnknown(Refused):
    """There is no such kind or job."""

    status = HTTPStatus.NOT_FOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A job as it was read, with its pods."""

    job: training_jobs.Job
    workload: port.Workload
    pods: tuple[port.Pod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The effects of an order: the pods that it ends, and the conditions that hold it back.

    ``passed_over``: the guards that an approver's order overrides. ``standing``: whether another person must approve.
    ``excludes``: the hosts that the job is kept off.
    """

    target: Target
    held_back: tuple[reasons.Reason, ...]
    standing: order_approval.ApprovalVerdict
    passed_over: tuple[reasons.Reason, ...] = ()
    excludes: tuple[str, ...] = ()


def kind_named(text: str) -> str:
    """The kind of this name in any case, or of one of its short names. Raises JobUnknown."""
    known = {kind.lower(): kind for kind in port.WORKLOADS} | ALIASES
    kind = known.get(text.lower())
    if kind is None:
        raise JobUnknown(reasons.of("job_kind_unknown", kind=text[:40], known=", ".join(port.WORKLOADS)))
    return kind


def read(cluster: Cluster, *, kind: str, namespace: str, name: str) -> Target:
    """Reads a job and its pods. Raises JobUnknown, and OrderRefused if the cluster does not answer."""
    try:
        kube = fleet.connect(cluster)
        job, workload = training_jobs.read(kube, namespace, kind, name)
        return Target(job=job, workload=workload, pods=tuple(training_jobs.pods_of(kube, job)))
    except port.NotFound as error:
        where = f"{namespace}/{name}"
        raise JobUnknown(reasons.of("job_unknown", kind=kind, job=where, cluster=cluster.name)) from error
    except port.KubeError as error:
        raise OrderRefused(
            reasons.of("job_cluster_silent", cluster=cluster.name, why=kube_reasons.of(error))
        ) from error


def preview(
    cluster: Cluster,
    *,
    kind: str,
    namespace: str,
    name: str,
    action: str,
    people: Collection[str],
    now: datetime,
    may_approve: bool = False,
) -> Preview:
    """The effects that the order would have now. ``people``: everybody who counts as the person who gives it.

    Raises JobUnknown, and OrderRefused if the cluster does not answer.
    """
    target = read(cluster, kind=kind_named(kind), namespace=namespace, name=name)
    guarded = _held_by_guards(cluster, target, now=now) if action == JobOrder.Action.RESTART else ()
    standing = order_approval.standing(cluster, target.job, action, people=people, may_approve=may_approve, now=now)
    held = [
        *_held_by_mode(cluster, may_approve=may_approve or standing.waits or standing.refusal is not None),
        *([standing.refusal] if standing.refusal else ()),
        *obstacles(target, action),
        *_under_way(cluster, target),
    ]
    excludes: list[str] = []
    if action == JobOrder.Action.RESTART:
        excludes = excluded_nodes.to_exclude(cluster, target.job, target.workload, now=now)
    return Preview(
        target=target,
        held_back=tuple(held) if may_approve else (*held, *guarded),
        passed_over=guarded if may_approve else (),
        standing=standing,
        excludes=tuple(excludes),
    )


def order(
    cluster: Cluster,
    *,
    kind: str,
    namespace: str,
    name: str,
    action: str,
    requested_by: str,
    people: Collection[str] = (),
    reason: str,
    now: datetime,
    may_approve: bool = False,
) -> JobOrder:
    """Orders a restart or stop for a person or program, or approves the order of another person.

    ``people``: everybody who counts as the person. The order waits (state held) where another person must approve it.
    Raises JobUnknown, OrderRefused.
    """
    about = {"kind": kind, "namespace": namespace, "name": name, "action": action}
    names = sorted({requested_by, *people})
    found = preview(cluster, **about, people=names, may_approve=may_approve, now=now)
    if found.held_back:
        raise OrderRefused(reasons.both(*found.held_back))
    asked: dict[str, Any] = {
        "cause": JobOrder.Cause.PERSON,
        "requested_by": requested_by,
        "requesters": names,
        "reason": reason,
        "now": now,
    }
    if found.standing.waits:
        because = reasons.of("job_awaits_approval", by=requested_by)
        waits: dict[str, Any] = {"state": JobOrder.State.HELD, "because": because, "awaits_approval": True}
        return create(cluster, found.target.job, action=action, **asked, **waits)
    try:
        with transaction.atomic():
            _check_waits(found.standing.approves)
            return create(cluster, found.target.job, action=action, passed_over=found.passed_over, **asked)
    except IntegrityError as error:  # another order of the same moment
        raise OrderRefused(reasons.both(*_under_way(cluster, found.target))) from error


def _check_waits(approved: JobOrder | None) -> None:
    """Raises OrderRefused if the order that is approved was declined or approved a moment ago."""
    if approved is None:
        return
    waits = JobOrder.objects.select_for_update(of=("self",)).filter(pk=approved.pk, state=JobOrder.State.HELD)
    if waits.first() is None:
        raise OrderRefused(reasons.of("job_no_order_waits"))


def obstacles(target: Target, action: str) -> Iterator[reasons.Reason]:
    """The property of the job itself that prevents a restart or stop."""
    job, workload = target.job, target.workload
    if (job.kind, job.name) != (workload.kind, workload.name):
        yield reasons.of("job_part_of", job=workload.name, kind=job.kind, owner=job.name)
        return
    if workload.phase in (port.Phase.SUCCEEDED, port.Phase.FAILED):
        yield reasons.of("job_ended")
    elif workload.phase is port.Phase.SUSPENDED:
        yield reasons.of("job_suspended")
    elif action == JobOrder.Action.STOP:
        if job.known.stop is port.JobMethod.NONE:
            yield reasons.of("job_cannot_stop", kind=job.kind)
        elif workload.queue:
            yield reasons.of("job_in_queue", queue=workload.queue)
    elif training_jobs.is_never_restarted(job, target.pods):
        yield reasons.of("job_never_restarted")
    elif not target.pods:
        yield reasons.of("job_has_no_pods")


def create(
    cluster: Cluster,
    job: training_jobs.Job,
    *,
    action: str = JobOrder.Action.RESTART,
    cause: str,
    requested_by: str,
    now: datetime,
    reason: str = "",
    requested_because: reasons.Reason | None = None,
    incident: int | None = None,
    state: str = JobOrder.State.RUNNING,
    because: reasons.Reason | None = None,
    due_at: datetime | None = None,
    passed_over: tuple[reasons.Reason, ...] = (),
    requesters: Collection[str] = (),
    awaits_approval: bool = False,
    channel: str = "",
) -> JobOrder:
    """Stores an order and its entry, in place of held ones about the job. Raises IntegrityError if one is running.

    An order that awaits approval takes the place of others that do, not of the portal's own questions. Only a person's
    order takes the place of one that awaits approval, and one that has ended at once takes none. ``channel``: the
    one that tells the job's owner if the order ends at once.
    """
    where = {"cluster": cluster, "namespace": job.namespace, "kind": job.kind, "name": job.name}
    is_open = state in (JobOrder.State.RUNNING, JobOrder.State.HELD)
    with transaction.atomic():
        made = JobOrder.objects.create(
            **where,
            action=action,
            cause=cause,
            requested_by=requested_by,
            requested_because=requested_because.to_json() if requested_because else {},
            incident_id=incident,
            reason=reason,
            requested_at=now,
            state=state,
            because=because.to_json() if because else {},
            due_at=due_at or now,
            requesters=list(requesters),
            awaits_approval=awaits_approval,
            ended_at=None if is_open else now,
        )
        replaced = reasons.of("job_order_replaced", order=made.pk)
        held = JobOrder.objects.filter(**where, state=JobOrder.State.HELD).exclude(pk=made.pk)
        if awaits_approval:
            held = held.filter(awaits_approval=True)
        elif cause != JobOrder.Cause.PERSON:
            held = held.filter(awaits_approval=False)
        for old in held if is_open else ():
            settle(old, JobOrder.State.REPLACED, replaced, actor=requested_by, now=now)
        about: dict[str, Any] = {"order": made.pk, "kind": job.kind, "job": str(job), "action": action}
        acts: list[audit.Act] = [
            audit.JobOrdered(
                cause=cause,
                reason=reason,
                because=requested_because,
                incident=incident,
                passed_over=passed_over,
                **about,
            ),
        ]
        if state != JobOrder.State.RUNNING:
            acts.append(audit.JobOrderSettled(state=state, because=because, channel=channel, **about))
        ledger.append(cluster.name, [ledger.Draft(act=act, actor=requested_by, at=now) for act in acts])
    if state == JobOrder.State.RUNNING and made.due_at <= now:
        doorbell.ring("jobs.run", made.pk)
    doorbell.publish("job", made.pk, cluster=cluster.name)
    return made


def settle(order: JobOrder, state: str, because: reasons.Reason, *, actor: str, now: datetime) -> None:
    """Ends an order that waits for a person, with its entry, as part of the caller's transaction."""
    held = JobOrder.objects.filter(pk=order.pk, state=JobOrder.State.HELD)
    if held.update(state=state, because=because.to_json(), ended_at=now):
        ledger.record(order.cluster.name, settled(order, state, because), actor=actor, now=now)
        doorbell.publish("job", order.pk, cluster=order.cluster.name)


def settled(order: JobOrder, state: str, because: reasons.Reason) -> audit.JobOrderSettled:
    """The entry of an order that ends in this state, or waits for a person."""
    return audit.JobOrderSettled(
        order=order.pk,
        kind=order.kind,
        job=f"{order.namespace}/{order.name}",
        action=order.action,
        state=state,
        because=because,
    )


def _held_by_mode(cluster: Cluster, *, may_approve: bool) -> Iterator[reasons.Reason]:
    mode, why = fleet.mode_now(cluster)
    if mode in fleet.MODES_WITHOUT_WRITES:
        yield recheck_guards.silent(mode, why)
    elif mode == "approve" and not may_approve:
        yield reasons.of("job_needs_approver")


def _held_by_guards(cluster: Cluster, target: Target, *, now: datetime) -> tuple[reasons.Reason, ...]:
    nodes = {pod.node for pod in target.pods if pod.node}
    about = order_guards.GuardSubject(cluster=cluster, namespace=target.job.namespace, nodes=nodes)
    return order_guards.evaluate(about, now=now).held


def _under_way(cluster: Cluster, target: Target) -> Iterator[reasons.Reason]:
    job = target.job
    running = JobOrder.objects.filter(
        cluster=cluster, namespace=job.namespace, kind=job.kind, name=job.name, state=JobOrder.State.RUNNING
    ).first()
    if running is not None:
        yield reasons.of("job_order_running", order=running.pk)
