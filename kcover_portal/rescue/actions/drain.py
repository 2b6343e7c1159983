"""drain: evict the pods of the node gracefully, for as long as the policy allows.

DaemonSet and mirror pods stay. Completed and failed pods do not block. The step waits while a PodDisruptionBudget
refuses (invariants 24 to 28).
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial

from kcover import audit, reasons
from kcover.actions import drain as core
from kcover.nodes.node_stage import Stage
from kcover_portal.incidents import services as incidents
from kcover_portal.kube import port
from kcover_portal.rescue.step import evidence
from kcover_portal.rescue.step.context import Context, HeldBack
from kcover_portal.rescue.step.jobs import checkpoints, kueue_turns, owners
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, Hold, Outcome, Wait
from kcover_portal.workloads import training_jobs

POLL_SECONDS = 0.5
BLOCKED_SECONDS = (1.0, 2.0, 5.0, 10.0, 15.0)  # between tries while a budget refuses
FORCED_END_TIME_LIMIT = timedelta(minutes=10)  # a working kubelet has ended the pods by then
MAX_NAMES_SHOWN = 8  # pods named in a sentence


def run(context: Context) -> Outcome:
    """One round: requests the eviction of every pod that is still in the way, then waits for the pods to exit."""
    return owners.notify_after(context, _drain(context))


def _drain(context: Context) -> Outcome:
    _check_guards(context)
    node_marks.restate(context, Stage.DRAINING)
    pods = context.kube.list_pods(node=context.node.name)
    left = in_the_way(pods)
    if not context.step.progress_as(core.Progress).eviction_requested:
        # Once the pods have left, nobody could tell any more whose node it was.
        incidents.note_jobs(context.node, jobs_of(pods), now=context.now)
        owners.notify_before(context, lambda: _jobs_to_notify(context, left))
    waits = checkpoints.wait(context, lambda: _jobs_to_notify(context, left)) or kueue_turns.wait(context, left)
    if waits is not None:
        return waits
    progress = context.step.progress_as(core.Progress)
    if not left:
        evicted = len(progress.evicted)
        return Done(reasons.of("pods_evicted", count=evicted) if evicted else reasons.of("no_pods_to_evict"))
    deadline = _deadline(context)
    # Do not give up on pods that were never asked to leave: the worker may have been away the whole time.
    if context.now >= deadline and progress.eviction_requested:
        return _out_of_time(context, left)
    blocked = _evict(context, left)
    if blocked:
        context.remember(refusals=progress.refusals + 1, blocked=blocked)
        budgets = ", ".join(sorted({name for names in blocked.values() for name in names}))
        wait = BLOCKED_SECONDS[min(progress.refusals, len(BLOCKED_SECONDS) - 1)]
        refused = reasons.of(
            "drain_blocked",
            pods=", ".join(sorted(blocked)[:MAX_NAMES_SHOWN]),
            budgets=budgets or reasons.of("a_disruption_budget"),
            until=_clock(deadline),
        )
        return Wait(wait, refused)
    if progress.blocked:
        context.remember(refusals=0, blocked={})
    return Wait(POLL_SECONDS, _pods_reason("drain_leaving", left))


def _check_guards(context: Context) -> None:
    """Evaluates the guards first: while they hold back, the drain's time stands still. Raises HeldBack."""
    progress = context.step.progress_as(core.Progress)
    try:
        context.check_guards(destructive=True)
    except HeldBack:
        if progress.entered and progress.held_since is None:
            context.remember(held_since=context.now)
        raise
    if not progress.entered:
        evidence.request(context)  # so that the agent collects it while the pods leave
        context.note(entered=True)
    elif progress.held_since is not None:
        held = (context.now - progress.held_since).total_seconds()
        context.remember(held_since=None, held_seconds=progress.held_seconds + held)


def in_the_way(pods: Sequence[port.Pod]) -> list[port.Pod]:
    """The pods that a drain must move."""
    return [pod for pod in pods if not core.leaves(daemonset=pod.daemonset, mirror=pod.mirror, ended=pod.terminal)]


def _jobs_to_notify(context: Context, pods: Sequence[port.Pod]) -> Iterable[training_jobs.Job]:
    """The jobs of these pods. Jobs that the portal may not read do not delay a drain."""
    try:
        return training_jobs.find(context.kube, pods)
    except port.RefusedByServer:
        return ()


def jobs_of(pods: Sequence[port.Pod]) -> set[str]:
    """The jobs of these pods, including pods that have just ended: the fault may be what ended them."""
    return {f"{pod.namespace}/{pod.job}" for pod in pods if pod.job}


def _deadline(context: Context) -> datetime:
    """The end of the drain's time.

    It counts from the stored start of the step, so that a restart does not extend it (invariant 26). The waits for
    a checkpoint and for another drain, before the first eviction, do not count.
    """
    started = context.step.started_at or context.now
    progress = context.step.progress_as(core.Progress)
    held = timedelta(seconds=progress.held_seconds)
    limit = timedelta(seconds=context.step.args_as(core.Args).seconds)
    return started + held + progress.checkpoint_waited + progress.turn_waited + limit


def _evict(context: Context, left: Sequence[port.Pod]) -> dict[str, list[str]]:
    """Requests the eviction of each pod that is not leaving yet; returns the refused pods with their budgets."""
    if not context.step.progress_as(core.Progress).eviction_requested:
        context.remember(eviction_requested=True)
    blocked: dict[str, list[str]] = {}
    for pod in left:
        if pod.deleting:
            continue
        name = f"{pod.namespace}/{pod.name}"
        # uid: a pod that took this one's name since the list is not touched (invariant 25).
        evict = partial(context.kube.evict, pod.namespace, pod.name, uid=pod.uid)
        answer = context.write(
            audit.Call.EVICT,
            evict,
            target=f"pod {name}",
            destructive=True,
            wanted=audit.PodRemoval(uid=pod.uid),
        )
        if isinstance(answer, port.Blocked):
            blocked[name] = list(answer.budgets)
        elif isinstance(answer, port.Evicted):
            context.remember(evicted=(*context.step.progress_as(core.Progress).evicted, name))
    return blocked


def _out_of_time(context: Context, left: Sequence[port.Pod]) -> Outcome:
    """Applies the rule's choice for pods that did not exit in time: hold, proceed without them, or delete them by
    force.
    """
    context.remember(left=tuple(f"{pod.namespace}/{pod.name}" for pod in left))
    match context.step.args_as(core.Args).on_timeout:
        case "proceed":
            return Done(_pods_reason("drain_timeout_proceed", left))
        case "force":
            if context.now - _deadline(context) > FORCED_END_TIME_LIMIT:
                return Hold(_pods_reason("drain_force_failed", left))
            for pod in left:
                if not pod.deleting:
                    _force(context, pod)
            return Wait(POLL_SECONDS, _pods_reason("drain_timeout_force", left))
        case _:
            return Hold(_pods_reason("drain_timeout", left))


def _force(context: Context, pod: port.Pod) -> None:
    context.write(
        audit.Call.DELETE,
        lambda: context.kube.delete_pod(pod.namespace, pod.name, uid=pod.uid),
        target=f"pod {pod.namespace}/{pod.name}",
        destructive=True,
        wanted=audit.PodRemoval(uid=pod.uid, forced=True),
    )


def _pods_reason(code: str, pods: Sequence[port.Pod]) -> reasons.Reason:
    names = sorted(f"{pod.namespace}/{pod.name}" for pod in pods)
    return reasons.of(code, count=len(names), pods=reasons.named(names, most=MAX_NAMES_SHOWN))


def _clock(moment: datetime) -> str:
    return moment.strftime("%H:%M:%S UTC")
