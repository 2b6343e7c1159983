"""The life of a check run: begin, advance step by step, finish or stop, prune."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F

from kcover import audit, reasons
from kcover.checks import autopilot
from kcover_portal.checks.models import CheckRun, CheckTarget
from kcover_portal.checks.services import iperf_rings, node_checks, pvc_check, requests, results
from kcover_portal.fleet.models import Cluster, Command, Node
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import Refused
from kcover_portal.runtime.services import claims, retention

CLUSTER_CALL_LEASE = timedelta(seconds=60)  # longer than one step's calls of the cluster
RETRY_AFTER = timedelta(seconds=30)  # for a cluster that did not answer
MAX_RUNS = 20  # running at one time in a cluster


class CheckRunRefused(Refused):
    """The request conflicts with the present state: the run is over, or too many are running."""


def begin(
    cluster: Cluster,
    nodes: Sequence[Node],
    *,
    checks: Sequence[str],
    actor: str,
    requester: CheckRun.Requester = CheckRun.Requester.PERSON,
    now: datetime,
    level: int = 1,
    limits: Mapping[str, float] | None = None,
    batch: int = 0,
    peers: Sequence[str] = (),
    traffic: iperf_rings.Traffic | None = None,
    storage_class: str = "",
) -> CheckRun:
    """Creates a run on these nodes, at least one.

    ``limits``: replace the agents' own, such as ``threshold`` of pciebw. ``batch``: nodes at a time; 0: all, or as many
    as a ring may have. ``peers``: addresses that each node pings.
    ``traffic``: of iperf; None: Autopilot's. ``storage_class``: of pvc; "": the cluster's setting. Raises
    CheckRunRefused.
    """
    in_rings = iperf_rings.CHECK in checks
    size = _size(len(nodes), batch, in_rings=in_rings)
    with transaction.atomic():
        if CheckRun.objects.filter(cluster=cluster, state=CheckRun.State.RUNNING).count() >= MAX_RUNS:
            raise CheckRunRefused(reasons.of("check_runs_full", count=MAX_RUNS, cluster=cluster.name))
        run = CheckRun.objects.create(
            cluster=cluster,
            checks=list(checks),
            level=level,
            limits=dict(limits or {}),
            peers=list(peers),
            batch=size if in_rings else batch,
            total=len(nodes),
            ring=iperf_rings.planned(traffic or iperf_rings.Traffic()) if in_rings else {},
            storage=pvc_check.planned(storage_class or cluster.storage_class) if pvc_check.CHECK in checks else {},
            requested_by=actor,
            requester_kind=requester,
            requested_at=now,
        )
        CheckTarget.objects.bulk_create(
            CheckTarget(run=run, node=node, place=place, batch=place // size) for place, node in enumerate(nodes)
        )
        act = audit.CheckRunRequested(
            check_run=run.pk,
            checks=tuple(checks),
            level=level,
            batch=batch,
            nodes=tuple(node.name for node in nodes[: audit.MAX_NAMED_NODES]),
            count=len(nodes),
        )
        ledger.record(cluster.name, act, actor=actor, now=now)
        doorbell.ring("checks.advance_run", run.pk)
        doorbell.publish("checks", run.pk, cluster=cluster.name)
    return run


def advance(run_id: int, *, now: datetime) -> None:
    """Stores the agents' answers, and requests the next batch once the present one is finished.

    Safe to call at any time and concurrently. One caller does the work; if it must call the cluster, which may hang,
    the others do not wait for it.
    """
    run = CheckRun.objects.select_related("cluster").filter(pk=run_id, state=CheckRun.State.RUNNING).first()
    if run is None:
        return
    if iperf_rings.under_way(run) or (not requests.invasive(run) and pvc_check.CHECK not in run.checks):
        _advance(run, None, {}, now=now)
        return
    rows = CheckRun.objects.filter(pk=run_id)
    if not rows.filter(claims.free(now=now, lease="busy_until")).update(busy_until=now + CLUSTER_CALL_LEASE):
        return
    held: Mapping[str, reasons.Reason] | None = {}
    try:
        pvc_check.advance(run, now=now)
        if pvc_check.CHECK not in run.checks or pvc_check.is_over(run):
            batch = requests.next_batch(run)
            held = requests.in_use(run, batch, now=now) if batch is not None and requests.invasive(run) else {}
            if held is not None:
                _advance(run, batch, held, now=now)
    finally:
        rows.update(busy_until=None if held is not None else now + RETRY_AFTER)


def _advance(run: CheckRun, batch: int | None, held: Mapping[str, reasons.Reason], *, now: datetime) -> None:
    """Advances the locked run. ``held``: why GPUs of nodes of ``batch`` are not idle, by node name."""
    with transaction.atomic():
        going_on = CheckRun.objects.filter(pk=run.pk, state=CheckRun.State.RUNNING)
        if not going_on.select_for_update(no_key=True).exists():
            return
        run.refresh_from_db(fields=("ring",))  # another worker may have advanced the run meanwhile
        ended = [*results.settle(run, now=now), *iperf_rings.go_on(run, now=now)]
        due = requests.next_batch(run)
        while due is not None and (due == batch or not requests.invasive(run)):
            ended += [*requests.ask(run, due, held, now=now), *iperf_rings.go_on(run, now=now)]
            due = requests.next_batch(run)  # if nothing could be requested in this batch, try the next one
        if ended:
            _count(run, ended)
        if due is not None:
            doorbell.ring("checks.advance_run", run.pk)
        elif not run.targets.filter(state=CheckTarget.State.REQUESTED).exists():
            going_on.update(state=CheckRun.State.FINISHED, finished_at=now)
            _note_end(run, now=now)
            _tell_end(run)


def _size(nodes: int, batch: int, *, in_rings: bool) -> int:
    """The number of nodes at a time.

    More nodes than a ring may have are split into the fewest rings, of about the same size.
    """
    size = min(batch, nodes) or nodes
    if not in_rings or size <= iperf_rings.MAX_RING_NODES:
        return size
    if batch:
        raise CheckRunRefused(reasons.of("check_ring_too_large", most=iperf_rings.MAX_RING_NODES))
    return -(-nodes // -(-nodes // iperf_rings.MAX_RING_NODES))


def _count(run: CheckRun, ended: Sequence[CheckTarget]) -> None:
    """Updates the run's progress."""
    failed = sum(target.statuses not in node_checks.GOOD_STATUSES for target in ended)
    CheckRun.objects.filter(pk=run.pk).update(done=F("done") + len(ended), wrong=F("wrong") + failed)
    doorbell.publish("checks", run.pk, cluster=run.cluster.name)


def stop(run: CheckRun, *, actor: str, reason: str, because: reasons.Reason | None = None, now: datetime) -> None:
    """Stops the run and withdraws commands that no agent has answered. Raises CheckRunRefused if the run is over.

    ``reason``: a person's words; ``because``: why the portal stops it.
    """
    with transaction.atomic():
        going_on = CheckRun.objects.filter(pk=run.pk, state=CheckRun.State.RUNNING)
        if not going_on.update(state=CheckRun.State.STOPPED, finished_at=now):
            raise CheckRunRefused(reasons.of("check_run_ended", run=run.pk))
        run.refresh_from_db(fields=("ring",))
        _count(run, results.settle(run, now=now))
        withdrawn = reasons.of("command_withdrawn", why=reasons.of("its_run_stopped"))
        Command.objects.filter(check_target__run=run, state=Command.State.OFFERED).update(
            state=Command.State.EXPIRED, because=withdrawn.to_json(), finished_at=now
        )
        run.targets.filter(state__in=(CheckTarget.State.WAITING, CheckTarget.State.REQUESTED)).update(
            state=CheckTarget.State.STOPPED,
            statuses=[autopilot.NOT_CHECKED],
            note=reasons.of("stopped_because", why=because or reason[:1000]).to_json(),
            finished_at=now,
        )
        act = audit.CheckRunStopped(check_run=run.pk, reason=reason, because=because)
        ledger.record(run.cluster.name, act, actor=actor, now=now)
        _tell_end(run)
    if pvc_check.CHECK in run.checks and not pvc_check.is_over(run):
        run.refresh_from_db()
        pvc_check.drop(run, now=now)


def prune(*, now: datetime) -> int:
    """Deletes old runs and their commands; returns the number of runs.

    Commands of rescues stay: their keys prevent a second request.
    """
    before = retention.before(CheckRun, now=now)
    ended = CheckRun.objects.exclude(state=CheckRun.State.RUNNING).filter(finished_at__lt=before)
    removed = retention.delete(ended, batch=1_000)
    of_runs = Command.objects.filter(requester_kind=Command.Requester.CHECK_RUN, check_target=None)
    retention.delete(of_runs.filter(expires_at__lt=before))
    return removed


def _tell_end(run: CheckRun) -> None:
    """Wakes a worker for the run's validation, and tells open pages."""
    doorbell.ring("checks.conclude_validation", run.pk)
    doorbell.publish("checks", run.pk, cluster=run.cluster.name)


def _note_end(run: CheckRun, *, now: datetime) -> None:
    ended = run.targets.select_related("node").only("statuses", "node__name")
    failed = [target for target in ended if target.statuses not in node_checks.GOOD_STATUSES]
    act = audit.CheckRunFinished(
        check_run=run.pk,
        count=run.total,
        wrong={target.node.name: tuple(target.statuses) for target in failed[: audit.MAX_NAMED_NODES]},
        wrong_count=len(failed),
    )
    ledger.record(run.cluster.name, act, actor="system", now=now)
