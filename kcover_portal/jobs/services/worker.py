"""Carries orders out: one worker at a time, under a lease, crash-safe. A begun entry precedes every call.

A restart is over when the job's pods run again. After a deadline, or if the cluster keeps refusing, a person is asked.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from django.db import transaction

from kcover import audit, reasons
from kcover.values import back_off
from kcover.values.kube_names import ObjectName
from kcover_portal.jobs.models import JobOrder, JobPerformance, PodFailure
from kcover_portal.jobs.services import excluded_nodes, failures, orders
from kcover_portal.jobs.services.order_calls import CLAIMS, HeldBack, OrderCalls, OrderLeaseLost
from kcover_portal.kube import port, reasons as kube_reasons
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.rescue.actions import restart_jobs
from kcover_portal.rescue.step.jobs import job_window
from kcover_portal.rescue.step.jobs.job_restart import MAX_NAMES_SHOWN, Restart, missing
from kcover_portal.runtime.services import retention
from kcover_portal.workloads import training_jobs

log = logging.getLogger(__name__)
POLL = timedelta(seconds=1)
HELD_BACK = timedelta(seconds=5)
MAX_HOLD = timedelta(seconds=15)  # a guard may release at any time
MAX_ATTEMPTS = 20
EXCLUSION_TRIES = 2  # after which an order restarts the job without
COMMAND_OBEYED = timedelta(seconds=30)  # a controller that took a Command has begun to end the pods by then
COMMANDED = tuple(kind for kind, known in port.WORKLOADS.items() if known.restart is port.JobMethod.COMMAND)
MAX_BACK_OFF = timedelta(minutes=1)
State = JobOrder.State


def run(pk: int, *, clock: Callable[[], datetime]) -> None:
    """Takes a due order as far as it goes now."""
    now = clock()
    order = CLAIMS.take(pk, now=now)
    if order is None:
        return
    work = _Work(order=order, clock=clock)
    try:
        _go_on(work)
    except OrderLeaseLost:
        log.info("order %s: another worker has it", pk)
    finally:
        work.note_answers()


def _go_on(work: "_Work") -> None:
    try:
        work.go_on()
    except HeldBack as held:
        until = held.again_at - work.clock() if held.again_at else HELD_BACK
        work.wait(held.reason, max(HELD_BACK, min(until, MAX_HOLD)))
    except port.KubeError as error:
        is_open = isinstance(error, port.Unavailable) and error.ambiguous
        work.failed(kube_reasons.of(error), lasting=isinstance(error, port.RefusedByServer), is_open=is_open)


def prune(*, now: datetime) -> None:
    """Deletes old orders and failures of pods, and what is known of jobs that are gone."""
    JobOrder.objects.filter(ended_at__lt=retention.before(JobOrder, now=now), label_stays=False).delete()
    PodFailure.objects.filter(over_at__lt=retention.before(PodFailure, now=now)).delete()
    JobPerformance.objects.filter(seen_at__lt=retention.before(JobPerformance, now=now)).delete()


class _Work(OrderCalls):
    """One run of one order by the worker that holds its lease."""

    @property
    def stops(self) -> bool:
        return self.order.action == JobOrder.Action.STOP

    def go_on(self) -> None:
        """Claims the job, makes the remaining calls, then waits for their effect."""
        order = self.order
        if not order.restart and not self._begin():
            return
        restart = Restart.from_json(ObjectName(order.namespace, order.name), order.restart)
        if order.since is None:
            if self.stops:
                restart.stop(self.kube, self.write)
            else:
                self._exclude_nodes(restart.job)
                restart.make(self.kube, self.write)
            self._clear_label(restart.job)
            self.update(since=self.clock())
        self._wait_for_end(restart, order.since or self.clock())

    def _begin(self) -> bool:
        """Stores the pods before the first call. False: the order ended, or the job was restarted a moment ago."""
        order, now = self.order, self.clock()
        try:
            job, workload = training_jobs.read(self.kube, order.namespace, order.kind, order.name)
        except port.NotFound:
            self.end(State.FAILED, reasons.of("job_gone"))
            return False
        if workload.phase in (port.Phase.SUCCEEDED, port.Phase.FAILED):
            self.end(State.FAILED, reasons.of("job_ended"))
            return False
        nodes = sorted({pod.node for pod in training_jobs.pods_of(self.kube, job) if pod.node})
        if not self.stops:
            self.check_guards(nodes=nodes)
        restart = Restart.of(self.kube, job)
        with transaction.atomic():
            if not self.stops and not job_window.claim(order.cluster, job, because=_why(order), now=now):
                lately = reasons.of("restarted_lately", seconds=job_window.WINDOW.seconds, jobs=str(job))
                self.wait(lately, job_window.WINDOW / 6)
                return False
            self.update(restart={**restart.to_json(), "nodes": nodes}, because={})
        return True

    def _exclude_nodes(self, job: training_jobs.Job) -> None:
        """Keeps the job off the nodes that it accuses.

        Raises port.Unavailable the first times, because the restart needs the API server as well. A call that fails
        again does not hold the restart up.
        """
        if not job.known.replicas:
            return
        try:
            workload = self.kube.workload(job.namespace, job.kind, job.name)
            hosts = excluded_nodes.to_exclude(self.order.cluster, job, workload, now=self.clock())
            if not hosts:
                return
            exclude = partial(self.kube.exclude_hosts, job.namespace, job.kind, job.name, uid=job.uid, hosts=hosts)
            wanted = audit.JobCommand(kind=job.kind, uid=job.uid, action=f"exclude {', '.join(hosts)}")
            self.write(audit.Call.EXCLUDE, exclude, target=f"job {job}", wanted=wanted)
        except port.KubeError as error:
            if isinstance(error, port.Unavailable) and self.order.attempts < EXCLUSION_TRIES:
                raise
            log.info("order %s: no node is excluded: %s", self.order.pk, error)

    def _clear_label(self, job: training_jobs.Job) -> None:
        """Takes a person's order off the job, now that it is obeyed, or remembers that it is where it must stay."""
        if self.order.cause != JobOrder.Cause.LABEL:
            return
        for workload in training_jobs.labelled(self.kube, job):
            if not self._is_cleared(workload):
                self.update(label_stays=True)

    def _is_cleared(self, workload: port.Workload) -> bool:
        """Removes the label from a job or a part of one. Returns False if it must stay."""
        if not port.WORKLOADS[workload.kind].changed:
            return False
        clear = partial(
            self.kube.label_workload,
            workload.namespace,
            workload.kind,
            workload.name,
            labels={training_jobs.NEEDS_RECOVERY: None},
        )
        try:
            self.write(
                audit.Call.LABEL,
                clear,
                target=f"job {workload.namespace}/{workload.name}",
                wanted=audit.JobCommand(kind=workload.kind, uid=workload.uid, action="unlabel"),
            )
        except port.RefusedByServer as error:
            log.info("order %s: the label of %s stays: %s", self.order.pk, workload.name, error)
            return False
        return True

    def _wait_for_end(self, restart: Restart, since: datetime) -> None:
        phase, back = restart.look(self.kube)
        waited = self.clock() - since
        minutes = int(restart_jobs.RESTART_TIME_LIMIT.total_seconds() // 60)
        if phase is None:
            self.end(State.DONE, reasons.of("job_gone"))
        elif self.stops:
            self._wait_until_stopped(restart, waited, minutes)
        elif phase is port.Phase.FAILED:
            self.end(State.HELD, reasons.of("job_failed_again", job=str(restart.job)))
        elif back.complete or phase is not port.Phase.RUNNING:
            self.end(State.DONE, reasons.of("jobs_restarted", jobs=str(restart.job)))
        elif waited >= restart_jobs.RESTART_TIME_LIMIT:
            late = reasons.of("jobs_not_back", minutes=minutes)
            self.end(State.HELD, reasons.both(late, missing(restart, back)))
        else:
            self.wait(missing(restart, back), POLL)

    def _wait_until_stopped(self, restart: Restart, waited: timedelta, minutes: int) -> None:
        left = [pod.name for pod in restart.not_ended(self.kube)]
        named = reasons.named(sorted(left), most=MAX_NAMES_SHOWN)
        if not left:
            self.end(State.DONE, reasons.of("job_stopped", job=str(restart.job)))
        elif waited >= restart_jobs.RESTART_TIME_LIMIT:
            self.end(State.HELD, reasons.of("job_not_stopped", minutes=minutes, pods=named))
        else:
            self.wait(reasons.of("job_stops", pods=named), POLL)

    # The row

    def wait(self, why: reasons.Reason, time: timedelta, *, attempts: int = 0) -> None:
        """Puts the order back until it is due again."""
        self.update(CLAIMS.put_back, because=why.to_json(), due_at=self.clock() + time, attempts=attempts)

    def failed(self, why: reasons.Reason, *, lasting: bool, is_open: bool) -> None:
        """Tries again later; after many failures, or if a retry does not help, a person is asked.

        ``is_open``: the call may have taken effect. A Command that its controller took is seen by its effect only, so
        it is not given again before that must show.
        """
        attempts = self.order.attempts + 1
        if lasting or attempts >= MAX_ATTEMPTS:
            self.end(State.HELD, reasons.of("job_order_given_up", count=attempts, why=why))
            return
        least = COMMAND_OBEYED if is_open and self.order.kind in COMMANDED else timedelta(0)
        self.wait(why, max(least, back_off.doubled(attempts, least=POLL * 2, most=MAX_BACK_OFF)), attempts=attempts)

    def end(self, state: str, why: reasons.Reason) -> None:
        """Settles the order, with its entry."""
        order, now = self.order, self.clock()
        with transaction.atomic():
            ended = None if state == State.HELD else now
            self.update(CLAIMS.put_back, state=state, because=why.to_json(), ended_at=ended)
            if state == State.DONE:
                failures.end(
                    order.cluster,
                    namespace=order.namespace,
                    kind=order.kind,
                    name=order.name,
                    because=why,
                    now=now,
                    before=order.since,
                )
            ledger.append(order.cluster.name, [*self.answers, self.draft(orders.settled(order, state, why))])
        self.answers = []
        doorbell.publish("job", order.pk, cluster=order.cluster.name)


def _why(order: JobOrder) -> reasons.Reason:
    """The reason why the order restarts the job, for the list of jobs."""
    fault = reasons.kept(order.requested_because)
    if fault is not None:
        return fault
    by = reasons.of("job_ordered_by", by=order.requested_by)
    return reasons.of("job_ordered_by_because", by=order.requested_by, why=order.reason) if order.reason else by
