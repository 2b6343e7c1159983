"""Runs of checks on many nodes: asked of the agents batch by batch, like Autopilot's ``/status``.

The rows are the run: whoever calls ``advance`` takes it one step on, and it ends whether or not anyone waits for it.
What needs idle GPUs is asked only where no pod holds any, one run at a time on a node; the agent looks again itself.
"""

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, F, Min, Q

from kcover import autopilot, fault
from kcover_portal import doorbell
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Agent, CheckRun, CheckTurn, Cluster, Command, Node
from kcover_portal.fleet.services import storing
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger

log = logging.getLogger(__name__)

HEARD_WITHIN = timedelta(minutes=1)  # on top of what the checks may take
NEIGHBOURS = 32  # that a node pings where nobody is named: the next ones by name, round the ring
BUSY = timedelta(seconds=60)  # longer than the calls that one look at the cluster makes
ONE_BY_ONE = 8  # nodes whose pods are asked for node by node; for more, every pod of the cluster is listed once
MOST_RESULTS = 200  # that an agent puts into one answer: the good ones beyond are not told
NAMED = 50  # nodes in the ledger
MOST_RUNS = 20  # that go on in a cluster at one time
CALM = ([autopilot.OK], [autopilot.NOT_CHECKED])
AT_ONE_TIME = 1_000  # runs that are removed in one go

Asked = CheckTurn.State.ASKED
Waiting = CheckTurn.State.WAITING


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
) -> CheckRun:
    """Lays down a run on these nodes, of which there must be some; ``batch`` at a time, 0: all at once.

    ``peers``: addresses that each node pings. Raises Refused.
    """
    size = batch if 0 < batch < len(nodes) else len(nodes)
    with transaction.atomic():
        if CheckRun.objects.filter(cluster=cluster, state=CheckRun.State.RUNNING).count() >= MOST_RUNS:
            raise Refused(f"{MOST_RUNS} check runs go on in cluster {cluster.name}: wait for one to end, or stop one")
        run = CheckRun.objects.create(
            cluster=cluster,
            checks=list(checks),
            level=level,
            peers=list(peers),
            batch=batch,
            total=len(nodes),
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
    if not _invasive(run) and storing.CHECK not in run.checks:
        _advance(run, None, {}, now=now)
        return
    rows = CheckRun.objects.filter(pk=run_id)
    if not rows.filter(Q(busy_until=None) | Q(busy_until__lte=now)).update(busy_until=now + BUSY):
        return
    try:
        storing.look(run, now=now)
        if storing.CHECK not in run.checks or storing.is_over(run):
            batch = _next(run)
            in_use = _in_use(run, batch) if batch is not None and _invasive(run) else {}
            _advance(run, batch, in_use, now=now)
    finally:
        rows.update(busy_until=None)


def _advance(run: CheckRun, batch: int | None, in_use: Mapping[str, str], *, now: datetime) -> None:
    """``in_use``: what is known of the GPUs of the nodes of ``batch``."""
    with transaction.atomic():
        going_on = CheckRun.objects.filter(pk=run.pk, state=CheckRun.State.RUNNING)
        if not going_on.select_for_update(no_key=True).exists():
            return
        ended = _settle(run, now=now)
        due = _next(run)
        while due is not None and (due == batch or not _invasive(run)):
            ended += _ask(run, due, in_use, now=now)
            due = _next(run)  # nobody in the batch could be asked: on to the next one
        if ended:
            _count(run, ended)
        if due is not None:
            doorbell.ring("fleet.advance_run", run.pk)
        elif not run.turns.filter(state=Asked).exists():
            going_on.update(state=CheckRun.State.FINISHED, finished_at=now)
            _note_end(run, now=now)
            doorbell.tell("checks", run.pk, cluster=run.cluster.name)


def _count(run: CheckRun, ended: Sequence[CheckTurn]) -> None:
    """Notes how far the run has come."""
    wrong = sum(turn.said not in CALM for turn in ended)
    CheckRun.objects.filter(pk=run.pk).update(done=F("done") + len(ended), wrong=F("wrong") + wrong)
    doorbell.tell("checks", run.pk, cluster=run.cluster.name)


def stop(run: CheckRun, *, actor: str, reason: str, now: datetime) -> None:
    """Asks nobody else; what agents were asked and have not begun is taken back. Raises Refused."""
    with transaction.atomic():
        going_on = CheckRun.objects.filter(pk=run.pk, state=CheckRun.State.RUNNING)
        if not going_on.update(state=CheckRun.State.STOPPED, finished_at=now):
            raise Refused(f"check run {run.pk} is over")
        _count(run, _settle(run, now=now))
        Command.objects.filter(turn__run=run, state=Command.State.OFFERED).update(
            state=Command.State.EXPIRED, message="withdrawn: its run was stopped", finished_at=now
        )
        run.turns.filter(state__in=(Waiting, Asked)).update(
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
    """Forgets runs that ended before a moment; returns how many."""
    past = CheckRun.objects.exclude(state=CheckRun.State.RUNNING).filter(finished_at__lt=before).order_by("pk")
    removed = 0
    while some := list(past.values_list("pk", flat=True)[:AT_ONE_TIME]):
        removed += len(some)
        CheckRun.objects.filter(pk__in=some).delete()
    return removed


def results_of(turn: CheckTurn) -> list[fault.Check]:
    """The results of a turn as values."""
    return [fault.Check(**one) for one in turn.results]


def _invasive(run: CheckRun) -> list[str]:
    return [check for check in run.checks if autopilot.invasive(check, level=run.level)]


def _next(run: CheckRun) -> int | None:
    """The batch to ask: None while one is under way, and when all were asked."""
    found = run.turns.aggregate(asked=Count("pk", filter=Q(state=Asked)), batch=Min("batch", filter=Q(state=Waiting)))
    batch: int | None = found["batch"] if not found["asked"] else None
    return batch


def _in_use(run: CheckRun, batch: int) -> Mapping[str, str]:
    """Why the GPUs of a node of the batch are not free, by the node's name."""
    names = set(run.turns.filter(batch=batch, state=Waiting).values_list("node__name", flat=True))
    try:
        kube = queries.connect(run.cluster)
        if len(names) <= ONE_BY_ONE:
            pods = [pod for name in sorted(names) for pod in kube.list_pods(node=name)]
        else:
            pods = kube.list_pods()
    except port.KubeError as error:
        log.info("check run %s: nobody says which pods hold GPUs: %s", run.pk, error)
        return dict.fromkeys(names, f"the cluster does not say which pods hold GPUs: {error}"[:500])
    held = [pod for pod in pods if pod.node in names and pod.gpus and not pod.terminal]
    return {pod.node: f"the pod {pod.namespace}/{pod.name} holds GPUs" for pod in reversed(held)}


def _ask(run: CheckRun, batch: int, in_use: Mapping[str, str], *, now: datetime) -> list[CheckTurn]:
    """Puts the commands of a batch on offer; returns the turns that ended at once, as nobody can be asked."""
    turns = list(run.turns.filter(batch=batch, state=Waiting).select_related("node").order_by("place"))
    nodes = [turn.node_id for turn in turns]
    heard = Agent.objects.filter(node__in=nodes, seen_at__gte=now - queries.AGENT_SILENT_AFTER)
    present = set(heard.values_list("pk", flat=True))
    loaded = dict(CheckTurn.objects.filter(node__in=nodes, state=Asked, invasive=True).values_list("node_id", "run_id"))
    ring = _ring(run)
    commands = []
    for turn in turns:
        why = in_use.get(turn.node.name, "")
        if turn.node_id in loaded:
            why = f"check run {loaded[turn.node_id]} loads its GPUs"
        held = _invasive(run) if why else []
        checks = [check for check in run.checks if check not in held and check not in autopilot.BY_THE_PORTAL]
        turn.results = [asdict(fault.Check(name=check, status="skipped", message=why)) for check in held]
        if storing.CHECK in run.checks:
            turn.results.append(storing.result(run))
        turn.asked_at = now
        if not checks:
            _close(turn, now=now)
        elif turn.node_id not in present:
            _close(turn, silent="its agent was not heard of lately", now=now)
        else:
            turn.state, turn.invasive = Asked, bool(_invasive(run)) and not held
            turn.command = _command(run, turn, checks, ring, now=now)
            commands.append(turn.command)
    Command.objects.bulk_create(commands, batch_size=500)
    changed = ("state", "invasive", "command", "results", "said", "note", "asked_at", "finished_at")
    CheckTurn.objects.bulk_update(turns, changed, batch_size=200)
    return [turn for turn in turns if turn.finished_at is not None]


def _command(
    run: CheckRun, turn: CheckTurn, checks: Sequence[str], ring: Sequence[tuple[str, str]], *, now: datetime
) -> Command:
    args: dict[str, Any] = {"checks": list(checks), "r": run.level}
    if "ping" in checks:
        args["hosts"] = list(run.peers) or _neighbours(turn.node.name, ring)
    return Command(
        id=uuid.uuid4(),
        node=turn.node,
        key=f"run-{run.pk}-{turn.place}",
        kind="run_check",
        args=args,
        created_at=now,
        expires_at=now + HEARD_WITHIN + autopilot.patience(checks, level=run.level),
    )


def _ring(run: CheckRun) -> list[tuple[str, str]]:
    """Names and addresses of the cluster's nodes, in order; only where they are needed."""
    if "ping" not in run.checks or run.peers:
        return []
    rows = Node.objects.filter(cluster=run.cluster, known=True, ready=True, gpus__gt=0).exclude(address="")
    return list(rows.order_by("name").values_list("name", "address"))


def _neighbours(name: str, ring: Sequence[tuple[str, str]]) -> list[str]:
    after = [address for other, address in ring if other > name]
    before = [address for other, address in ring if other < name]
    return [*after, *before][:NEIGHBOURS]


def _settle(run: CheckRun, *, now: datetime) -> list[CheckTurn]:
    """Takes in the answers to what was asked; returns the turns that ended so."""
    pending = Q(command__state=Command.State.OFFERED, command__expires_at__gt=now)
    ended = list(run.turns.filter(state=Asked).exclude(pending).select_related("command"))
    for turn in ended:
        command = turn.command
        if command is None or command.state in (Command.State.OFFERED, Command.State.EXPIRED):
            _close(turn, silent=(command.message if command else "") or "no answer in time", now=now)
            continue
        turn.results = [*turn.results, *_results(command)]
        _close(turn, now=now)
    CheckTurn.objects.bulk_update(ended, ("state", "results", "said", "note", "finished_at"), batch_size=200)
    return ended


def _results(command: Command) -> Iterable[dict[str, Any]]:
    """What an agent answered, as far as it can be read; what it says nothing of broke."""
    listed = command.output.get("checks") if command.state == Command.State.DONE else None
    found = [_result(one) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    why = "the agent says nothing of it"
    if command.state != Command.State.DONE:
        why = f"the agent did not run it: {command.state}: {command.message}"[:1000]
    told = {one["name"] for one in found}
    missing = [check for check in command.args["checks"] if check not in told] if len(found) < MOST_RESULTS else []
    return [*found, *(asdict(fault.Check(name=check, status="error", message=why)) for check in missing)]


def _result(one: Mapping[str, Any]) -> dict[str, Any]:
    value, status = one.get("value"), one.get("status")
    return asdict(
        fault.Check(
            name=str(one.get("name", ""))[:64],
            device=str(one.get("device") or "")[:128],
            status=str(status) if status in fault.CHECK_STATUSES else "error",
            value=float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None,
            unit=str(one.get("unit") or "")[:32],
            message=str(one.get("message") or "")[:1000],
        )
    )


def _close(turn: CheckTurn, *, now: datetime, silent: str = "") -> None:
    turn.finished_at = now
    turn.state, turn.note = (CheckTurn.State.SILENT, silent[:1000]) if silent else (CheckTurn.State.DONE, "")
    turn.said = [autopilot.NO_ANSWER] if silent else autopilot.failures(results_of(turn))


def _note_end(run: CheckRun, *, now: datetime) -> None:
    turns = run.turns.select_related("node").only("said", "node__name")
    wrong = [turn for turn in turns if turn.said not in CALM]
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
