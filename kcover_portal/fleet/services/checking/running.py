"""The life of a run: begun, taken on step by step, ended or stopped, forgotten."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q

from kcover import autopilot
from kcover_portal import doorbell
from kcover_portal.fleet.models import CheckRun, CheckTurn, Cluster, Command, Node
from kcover_portal.fleet.services import storing
from kcover_portal.fleet.services.checking import answers, asking, rings, turns
from kcover_portal.ledger import services as ledger

BUSY = timedelta(seconds=60)  # longer than the calls that one look at the cluster makes
AGAIN = timedelta(seconds=30)  # until a cluster that did not answer is asked again
NAMED = 50  # nodes in the ledger
MOST_RUNS = 20  # that go on in a cluster at one time
AT_ONE_TIME = 1_000  # runs that are removed in one go


class Refused(Exception):
    """As things stand it cannot be done: the run is over, or too many go on; the message says which."""


def begin(
    cluster: Cluster,
    nodes: Sequence[Node],
    *,
    checks: Sequence[str],
    actor: str,
    now: datetime,
    level: int = 1,
    batch: int = 0,
    peers: Sequence[str] = (),
    traffic: rings.Traffic | None = None,
    storage_class: str = "",
) -> CheckRun:
    """Lays down a run on these nodes, of which there must be some; ``batch`` at a time, 0: all at once, or as many as a
    ring may have.

    ``peers``: addresses that each node pings. ``traffic``: of iperf, None: Autopilot's. ``storage_class``: of pvc, "":
    the cluster's setting. Raises Refused.
    """
    in_rings = rings.CHECK in checks
    size = _size(len(nodes), batch, in_rings=in_rings)
    with transaction.atomic():
        if CheckRun.objects.filter(cluster=cluster, state=CheckRun.State.RUNNING).count() >= MOST_RUNS:
            raise Refused(f"{MOST_RUNS} check runs go on in cluster {cluster.name}: wait for one to end, or stop one")
        run = CheckRun.objects.create(
            cluster=cluster,
            checks=list(checks),
            level=level,
            peers=list(peers),
            batch=size if in_rings else batch,
            total=len(nodes),
            ring=rings.planned(traffic or rings.Traffic()) if in_rings else {},
            storage=storing.planned(storage_class or cluster.storage_class) if storing.CHECK in checks else {},
            asked_by=actor,
            asked_at=now,
        )
        CheckTurn.objects.bulk_create(
            CheckTurn(run=run, node=node, place=place, batch=place // size) for place, node in enumerate(nodes)
        )
        ledger.write(
            cluster.name,
            actor=actor,
            verb="checks.asked",
            subject=f"check run {run.pk}",
            now=now,
            data={
                "checks": list(checks),
                "level": level,
                "batch": batch,
                "nodes": [node.name for node in nodes[:NAMED]],
                "count": len(nodes),
            },
        )
        doorbell.ring("fleet.advance_run", run.pk)
        doorbell.tell("checks", run.pk, cluster=cluster.name)
    return run


def advance(run_id: int, *, now: datetime) -> None:
    """Settles what the agents answered, and asks the next batch once the one before is done.

    Nothing happens where there is nothing to do; of several callers at once one does it, and where the cluster must be
    asked, which may hang, the others do not wait for it.
    """
    run = CheckRun.objects.select_related("cluster").filter(pk=run_id, state=CheckRun.State.RUNNING).first()
    if run is None:
        return
    if rings.under_way(run) or (not asking.invasive(run) and storing.CHECK not in run.checks):
        _advance(run, None, {}, now=now)
        return
    rows = CheckRun.objects.filter(pk=run_id)
    if not rows.filter(Q(busy_until=None) | Q(busy_until__lte=now)).update(busy_until=now + BUSY):
        return
    held: Mapping[str, str] | None = {}
    try:
        storing.look(run, now=now)
        if storing.CHECK not in run.checks or storing.is_over(run):
            batch = asking.next_batch(run)
            held = asking.in_use(run, batch, now=now) if batch is not None and asking.invasive(run) else {}
            if held is not None:
                _advance(run, batch, held, now=now)
    finally:
        rows.update(busy_until=None if held is not None else now + AGAIN)


def _advance(run: CheckRun, batch: int | None, held: Mapping[str, str], *, now: datetime) -> None:
    """``held``: what is known of the GPUs of the nodes of ``batch``."""
    with transaction.atomic():
        going_on = CheckRun.objects.filter(pk=run.pk, state=CheckRun.State.RUNNING)
        if not going_on.select_for_update(no_key=True).exists():
            return
        run.refresh_from_db(fields=("ring",))  # somebody else may have taken it on since
        ended = [*answers.settle(run, now=now), *rings.go_on(run, now=now)]
        due = asking.next_batch(run)
        while due is not None and (due == batch or not asking.invasive(run)):
            ended += [*asking.ask(run, due, held, now=now), *rings.go_on(run, now=now)]
            due = asking.next_batch(run)  # nobody in the batch could be asked: on to the next one
        if ended:
            _count(run, ended)
        if due is not None:
            doorbell.ring("fleet.advance_run", run.pk)
        elif not run.turns.filter(state=CheckTurn.State.ASKED).exists():
            going_on.update(state=CheckRun.State.FINISHED, finished_at=now)
            _note_end(run, now=now)
            doorbell.tell("checks", run.pk, cluster=run.cluster.name)


def _size(nodes: int, batch: int, *, in_rings: bool) -> int:
    """Nodes at a time. More nodes than a ring may have are as few rings as possible, all about as large."""
    size = min(batch, nodes) or nodes
    if not in_rings or size <= rings.MOST:
        return size
    if batch:
        raise Refused(f"a ring of iperf has at most {rings.MOST} nodes: ask for so many at a time, or leave it open")
    return -(-nodes // -(-nodes // rings.MOST))


def _count(run: CheckRun, ended: Sequence[CheckTurn]) -> None:
    """Notes how far the run has come."""
    wrong = sum(turn.said not in turns.CALM for turn in ended)
    CheckRun.objects.filter(pk=run.pk).update(done=F("done") + len(ended), wrong=F("wrong") + wrong)
    doorbell.tell("checks", run.pk, cluster=run.cluster.name)


def stop(run: CheckRun, *, actor: str, reason: str, now: datetime) -> None:
    """Asks nobody else; what agents were asked and have not begun is taken back. Raises Refused."""
    with transaction.atomic():
        going_on = CheckRun.objects.filter(pk=run.pk, state=CheckRun.State.RUNNING)
        if not going_on.update(state=CheckRun.State.STOPPED, finished_at=now):
            raise Refused(f"check run {run.pk} is over")
        run.refresh_from_db(fields=("ring",))
        _count(run, answers.settle(run, now=now))
        Command.objects.filter(turn__run=run, state=Command.State.OFFERED).update(
            state=Command.State.EXPIRED, message="withdrawn: its run was stopped", finished_at=now
        )
        run.turns.filter(state__in=(CheckTurn.State.WAITING, CheckTurn.State.ASKED)).update(
            state=CheckTurn.State.STOPPED,
            said=[autopilot.NOT_CHECKED],
            note=f"stopped: {reason}"[:1000],
            finished_at=now,
        )
        ledger.write(
            run.cluster.name,
            actor=actor,
            verb="checks.stopped",
            subject=f"check run {run.pk}",
            now=now,
            data={"reason": reason},
        )
    if storing.CHECK in run.checks and not storing.is_over(run):
        run.refresh_from_db()
        storing.drop(run, now=now)


def prune(*, before: datetime) -> int:
    """Forgets runs that ended before a moment, and what agents were asked for them; returns how many.

    What a rescue asked stays: its key is what keeps it from being asked again.
    """
    past = CheckRun.objects.exclude(state=CheckRun.State.RUNNING).filter(finished_at__lt=before).order_by("pk")
    removed = 0
    while some := list(past.values_list("pk", flat=True)[:AT_ONE_TIME]):
        removed += len(some)
        CheckRun.objects.filter(pk__in=some).delete()
    asked = Command.objects.filter(key__startswith=turns.KEY, turn=None, expires_at__lt=before).order_by("pk")
    while of := list(asked.values_list("pk", flat=True)[:AT_ONE_TIME]):
        Command.objects.filter(pk__in=of).delete()
    return removed


def _note_end(run: CheckRun, *, now: datetime) -> None:
    ended = run.turns.select_related("node").only("said", "node__name")
    wrong = [turn for turn in ended if turn.said not in turns.CALM]
    ledger.write(
        run.cluster.name,
        actor="system",
        verb="checks.finished",
        subject=f"check run {run.pk}",
        now=now,
        data={
            "count": run.total,
            "wrong": {turn.node.name: turn.said for turn in wrong[:NAMED]},
            "wrong_count": len(wrong),
        },
    )
