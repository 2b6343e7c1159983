"""Requests to the nodes of a batch: which check may run on which node, as commands to their agents."""

import logging
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Count, Min, Q

from kcover import reasons
from kcover.checks import autopilot
from kcover.reasons import Reason
from kcover_portal.checks import queries as checks
from kcover_portal.checks.models import CheckRun, CheckTarget
from kcover_portal.checks.services import eligibility, iperf_rings, node_checks, pvc_check
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Agent, Command
from kcover_portal.fleet.services import neighbours
from kcover_portal.kube import bounds, port

log = logging.getLogger(__name__)

MAX_LISTS_PER_NODE = 8  # the number of nodes up to which pods are listed per node; above, all pods of the cluster once
NO_PARTNER = reasons.of("ring_without_partner")
NO_ADDRESS = reasons.of("node_without_address")

Requested = CheckTarget.State.REQUESTED
Waiting = CheckTarget.State.WAITING


def invasive(run: CheckRun) -> list[str]:
    """The checks of the run that need idle GPUs."""
    return [check for check in run.checks if autopilot.is_invasive(check, level=run.level)]


def next_batch(run: CheckRun) -> int | None:
    """The batch to request next; None while a batch is running, and after the last one."""
    found = run.targets.aggregate(
        requested=Count("pk", filter=Q(state=Requested)), batch=Min("batch", filter=Q(state=Waiting))
    )
    batch: int | None = found["batch"] if not found["requested"] else None
    return batch


def in_use(run: CheckRun, batch: int, *, now: datetime) -> Mapping[str, Reason] | None:
    """The reason why the GPUs of a node of the batch are not idle, by node name.

    None: the cluster does not answer, and no person waits for the run, so try again later. A list that is too large
    stays so.
    """
    nodes = [target.node for target in run.targets.filter(batch=batch, state=Waiting).select_related("node")]
    names = {node.name for node in nodes}
    skipped = eligibility.why_skipped(run.cluster, nodes, now=now) if eligibility.automatic(run) else {}
    try:
        kube = queries.connect(run.cluster)
        if len(names) <= MAX_LISTS_PER_NODE:
            pods = [pod for name in sorted(names) for pod in kube.list_pods(node=name)]
        else:
            pods = kube.list_pods()
    except port.KubeError as error:
        log.info("check run %s: the pods that hold GPUs are unknown: %s", run.pk, error)
        if (
            (eligibility.automatic(run) or run.requester_kind == CheckRun.Requester.RESCUE)
            and isinstance(error, port.Unavailable)
            and not isinstance(error, bounds.TooLarge)
        ):
            return None
        return dict.fromkeys(names, reasons.of("gpu_users_unknown", error=str(error)[:450]))
    held = [pod for pod in pods if pod.node in names and pod.gpus and not pod.terminal]
    users = {pod.node: reasons.of("pod_holds_gpus", pod=f"{pod.namespace}/{pod.name}") for pod in reversed(held)}
    return users | skipped


def ask(run: CheckRun, batch: int, held: Mapping[str, Reason], *, now: datetime) -> list[CheckTarget]:
    """Offers the commands of a batch. Returns the nodes that are finished at once because nothing can be requested.

    ``held``: why the GPUs of a node are not idle, by node name.
    """
    targets = list(run.targets.filter(batch=batch, state=Waiting).select_related("node").order_by("place"))
    nodes = [target.node_id for target in targets]
    reporting = Agent.objects.filter(node__in=nodes, seen_at__gte=now - queries.AGENT_SILENT_AFTER)
    present = set(reporting.values_list("pk", flat=True))
    loaded = checks.loaded(nodes)
    todo: dict[int, list[str]] = {}  # by place: the checks to request
    for target in targets:
        why = held.get(target.node.name)
        if target.node_id in loaded:
            why = reasons.of("check_run_uses_gpus", run=loaded[target.node_id])
        todo[target.place] = _requestable(run, target, why)
    members = [target for target in targets if iperf_rings.CHECK in todo[target.place] and target.node_id in present]
    if len(members) < 2:
        for target in members:
            _skip(target, todo[target.place], iperf_rings.CHECK, NO_PARTNER)
        members = []
    commands = _commands(run, targets, todo, present, now=now)
    Command.objects.bulk_create(commands, batch_size=500)
    CheckTarget.objects.bulk_update(targets, node_checks.WRITTEN_FIELDS, batch_size=200)
    if members:
        iperf_rings.begin(run, members)
    return [target for target in targets if target.finished_at is not None]


def _requestable(run: CheckRun, target: CheckTarget, why: Reason | None) -> list[str]:
    """The checks to request from the node; stores results for the others. ``why``: the reason its GPUs are not idle."""
    left = list(run.checks)
    target.results = []
    if why is not None:
        for check in invasive(run):
            _skip(target, left, check, why)
    if iperf_rings.CHECK in left and not target.node.address:
        _skip(target, left, iperf_rings.CHECK, NO_ADDRESS)
    if pvc_check.CHECK in left:
        left.remove(pvc_check.CHECK)
        target.results.append(pvc_check.result(run))
    return left


def _skip(target: CheckTarget, left: list[str], check: str, why: Reason) -> None:
    left.remove(check)
    target.results.append(node_checks.skipped(check, why))


def _commands(
    run: CheckRun, asked: Sequence[CheckTarget], todo: Mapping[int, list[str]], present: set[int], *, now: datetime
) -> list[Command]:
    circle = neighbours.circle(run.cluster) if "ping" in run.checks and not run.peers else []
    commands = []
    for target in asked:
        target.requested_at = now
        left = todo[target.place]
        if not left:
            node_checks.close(target, now=now)
            continue
        if target.node_id not in present:
            node_checks.close(target, silent=reasons.of("agent_not_reporting"), now=now)
            continue
        target.state, target.invasive = Requested, any(autopilot.is_invasive(check, level=run.level) for check in left)
        if checks := [check for check in left if check != iperf_rings.CHECK]:
            target.command = _command(run, target, checks, circle, now=now)
            commands.append(target.command)
    return commands


def _command(
    run: CheckRun,
    target: CheckTarget,
    checks: Sequence[str],
    circle: Sequence[neighbours.NamedAddress],
    *,
    now: datetime,
) -> Command:
    args: dict[str, Any] = {"checks": list(checks), "r": run.level, **run.limits}
    if "ping" in checks:
        args["hosts"] = list(run.peers) or neighbours.next_in(circle, target.node.name)
    return Command(
        id=uuid.uuid4(),
        node=target.node,
        key=f"run-{run.pk}-{target.place}",
        requester_kind=Command.Requester.CHECK_RUN,
        requester_id=run.pk,
        kind="run_check",
        args=args,
        created_at=now,
        expires_at=now + node_checks.PICKUP_TIMEOUT + autopilot.time_limit(checks, level=run.level),
    )
