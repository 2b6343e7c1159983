"""Asking the nodes of a batch: what may be asked of which, as commands of their agents."""

import logging
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Count, Min, Q

from kcover import autopilot
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Agent, CheckRun, CheckTurn, Command, Node
from kcover_portal.fleet.services import storing
from kcover_portal.fleet.services.checking import rings, sparing, turns
from kcover_portal.kube import port

log = logging.getLogger(__name__)

NEIGHBOURS = 32  # that a node pings where nobody is named: the next ones by name, round the ring
ONE_BY_ONE = 8  # nodes whose pods are asked for node by node; for more, every pod of the cluster is listed once
ALONE = "no other node of its batch can be measured against"
NO_ADDRESS = "the cluster shows no address (InternalIP) of this node"

Asked = CheckTurn.State.ASKED
Waiting = CheckTurn.State.WAITING


def invasive(run: CheckRun) -> list[str]:
    """What of the run needs idle GPUs."""
    return [check for check in run.checks if autopilot.invasive(check, level=run.level)]


def next_batch(run: CheckRun) -> int | None:
    """The batch to ask: None while one is under way, and when all were asked."""
    found = run.turns.aggregate(asked=Count("pk", filter=Q(state=Asked)), batch=Min("batch", filter=Q(state=Waiting)))
    batch: int | None = found["batch"] if not found["asked"] else None
    return batch


def in_use(run: CheckRun, batch: int, *, now: datetime) -> Mapping[str, str] | None:
    """Why the GPUs of a node of the batch are not free, by the node's name.

    None: to be asked again, as the cluster does not answer and no person waits for the run.
    """
    nodes = [turn.node for turn in run.turns.filter(batch=batch, state=Waiting).select_related("node")]
    names = {node.name for node in nodes}
    spared = sparing.spared(run.cluster, nodes, now=now) if sparing.automatic(run) else {}
    try:
        kube = queries.connect(run.cluster)
        if len(names) <= ONE_BY_ONE:
            pods = [pod for name in sorted(names) for pod in kube.list_pods(node=name)]
        else:
            pods = kube.list_pods()
    except port.KubeError as error:
        log.info("check run %s: nobody says which pods hold GPUs: %s", run.pk, error)
        if sparing.automatic(run) and isinstance(error, port.Unavailable):
            return None
        return dict.fromkeys(names, f"the cluster does not say which pods hold GPUs: {error}"[:500])
    held = [pod for pod in pods if pod.node in names and pod.gpus and not pod.terminal]
    return {pod.node: f"the pod {pod.namespace}/{pod.name} holds GPUs" for pod in reversed(held)} | spared


def ask(run: CheckRun, batch: int, held: Mapping[str, str], *, now: datetime) -> list[CheckTurn]:
    """Puts the commands of a batch on offer; returns the turns that ended at once, as nobody can be asked.

    ``held``: why the GPUs of a node are not free.
    """
    asked = list(run.turns.filter(batch=batch, state=Waiting).select_related("node").order_by("place"))
    nodes = [turn.node_id for turn in asked]
    heard = Agent.objects.filter(node__in=nodes, seen_at__gte=now - queries.AGENT_SILENT_AFTER)
    present = set(heard.values_list("pk", flat=True))
    loaded = dict(CheckTurn.objects.filter(node__in=nodes, state=Asked, invasive=True).values_list("node_id", "run_id"))
    todo: dict[int, list[str]] = {}  # by place, what is left to ask the node for
    for turn in asked:
        why = held.get(turn.node.name, "")
        if turn.node_id in loaded:
            why = f"check run {loaded[turn.node_id]} loads its GPUs"
        todo[turn.place] = _left(run, turn, why)
    members = [turn for turn in asked if rings.CHECK in todo[turn.place] and turn.node_id in present]
    if len(members) < 2:
        for turn in members:
            _skip(turn, todo[turn.place], rings.CHECK, ALONE)
        members = []
    commands = _commands(run, asked, todo, present, now=now)
    Command.objects.bulk_create(commands, batch_size=500)
    CheckTurn.objects.bulk_update(asked, turns.WRITTEN, batch_size=200)
    if members:
        rings.begin(run, members)
    return [turn for turn in asked if turn.finished_at is not None]


def _left(run: CheckRun, turn: CheckTurn, why: str) -> list[str]:
    """What the node is to be asked for; the results of the rest are noted. ``why`` its GPUs are not free, if so."""
    left = list(run.checks)
    turn.results = []
    for check in invasive(run) if why else []:
        _skip(turn, left, check, why)
    if rings.CHECK in left and not turn.node.address:
        _skip(turn, left, rings.CHECK, NO_ADDRESS)
    if storing.CHECK in left:
        left.remove(storing.CHECK)
        turn.results.append(storing.result(run))
    return left


def _skip(turn: CheckTurn, left: list[str], check: str, why: str) -> None:
    left.remove(check)
    turn.results.append(turns.skipped(check, why))


def _commands(
    run: CheckRun, asked: Sequence[CheckTurn], todo: Mapping[int, list[str]], present: set[int], *, now: datetime
) -> list[Command]:
    neighbours = _neighbourhood(run)
    commands = []
    for turn in asked:
        turn.asked_at = now
        left = todo[turn.place]
        if not left:
            turns.close(turn, now=now)
            continue
        if turn.node_id not in present:
            turns.close(turn, silent="its agent was not heard of lately", now=now)
            continue
        turn.state, turn.invasive = Asked, any(autopilot.invasive(check, level=run.level) for check in left)
        if checks := [check for check in left if check != rings.CHECK]:
            turn.command = _command(run, turn, checks, neighbours, now=now)
            commands.append(turn.command)
    return commands


def _command(
    run: CheckRun, turn: CheckTurn, checks: Sequence[str], neighbours: Sequence[tuple[str, str]], *, now: datetime
) -> Command:
    args: dict[str, Any] = {"checks": list(checks), "r": run.level}
    if "ping" in checks:
        args["hosts"] = list(run.peers) or _next_ones(turn.node.name, neighbours)
    return Command(
        id=uuid.uuid4(),
        node=turn.node,
        key=f"{turns.KEY}{run.pk}-{turn.place}",
        kind="run_check",
        args=args,
        created_at=now,
        expires_at=now + turns.HEARD_WITHIN + autopilot.patience(checks, level=run.level),
    )


def _neighbourhood(run: CheckRun) -> list[tuple[str, str]]:
    """Names and addresses of the cluster's nodes, in order; only where they are needed."""
    if "ping" not in run.checks or run.peers:
        return []
    rows = Node.objects.filter(cluster=run.cluster, known=True, ready=True, gpus__gt=0).exclude(address="")
    return list(rows.order_by("name").values_list("name", "address"))


def _next_ones(name: str, ring: Sequence[tuple[str, str]]) -> list[str]:
    after = [address for other, address in ring if other > name]
    before = [address for other, address in ring if other < name]
    return [*after, *before][:NEIGHBOURS]
