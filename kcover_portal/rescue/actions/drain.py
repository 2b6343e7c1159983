"""drain: evicts what runs on the node, gently, for as long as the policy allows.

DaemonSet and mirror pods stay; completed and failed pods do not block; a budget's refusal is waited out
(invariants 24 to 28).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from kcover_portal.incidents import services as incidents
from kcover_portal.kube import port
from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context, HeldBack
from kcover_portal.rescue.actions.outcome import Done, Hold, Outcome, Wait

POLL_SECONDS = 0.5
BLOCKED_SECONDS = (1.0, 2.0, 5.0, 10.0, 15.0)  # between tries against a budget that refuses
FORCED_WITHIN = timedelta(minutes=10)  # a kubelet that lives has ended them by then
NAMED = 8  # pods named in a sentence


def run(context: Context) -> Outcome:
    """One round: asks for every pod that is still in the way, then waits for them to go."""
    _ask(context)
    marking.restate(context, "draining")
    pods = context.kube.list_pods(node=context.node.name)
    if "asked" not in context.step.progress:  # once they have left nobody could tell any more whose node it was
        incidents.note_jobs(context.node, jobs_of(pods), now=context.now)
    left = in_the_way(pods)
    if not left:
        evicted = len(context.step.progress.get("evicted", ()))
        return Done(f"{_counted(evicted)} evicted" if evicted else "no pod was in the way")
    deadline = _deadline(context)
    # Nothing is given up that was never asked: a worker may have been away for all of the time.
    if context.now >= deadline and "asked" in context.step.progress:
        return _out_of_time(context, left)
    blocked = _evict(context, left)
    names = _names(left)
    if blocked:
        round_ = int(context.step.progress.get("refusals", 0))
        context.remember(refusals=round_ + 1, blocked=blocked)
        budgets = ", ".join(sorted({name for names in blocked.values() for name in names})) or "a disruption budget"
        wait = BLOCKED_SECONDS[min(round_, len(BLOCKED_SECONDS) - 1)]
        return Wait(wait, f"{budgets} refuses to evict {', '.join(sorted(blocked)[:NAMED])}; until {_clock(deadline)}")
    if context.step.progress.get("blocked"):
        context.remember(refusals=0, blocked={})
    return Wait(POLL_SECONDS, f"{_counted(len(left))} leaving: {names}")


def _ask(context: Context) -> None:
    """The guards, before anything else: what holds the evictions back holds the drain's time, too. Raises HeldBack."""
    progress = context.step.progress
    try:
        context.check_guards(destructive=True)
    except HeldBack:
        if "begun" in progress and "held_since" not in progress:
            context.remember(held_since=context.now.isoformat())
        raise
    if "begun" not in progress:
        context.remember(begun=True)
    elif "held_since" in progress:
        held = (context.now - datetime.fromisoformat(progress["held_since"])).total_seconds()
        context.step.progress = {key: value for key, value in progress.items() if key != "held_since"}
        context.remember(held_seconds=progress.get("held_seconds", 0) + held)


def in_the_way(pods: Sequence[port.Pod]) -> list[port.Pod]:
    """The pods that a drain must move: not DaemonSets' or mirror pods, not those that have ended."""
    return [pod for pod in pods if not (pod.daemonset or pod.mirror or pod.terminal)]


def jobs_of(pods: Sequence[port.Pod]) -> set[str]:
    """The jobs that these pods belong to, also of those that have just ended: it may be what they ended of."""
    return {f"{pod.namespace}/{pod.job}" for pod in pods if pod.job}


def _deadline(context: Context) -> datetime:
    """Counted from the stored start of the step, so that a restart does not extend it (invariant 26)."""
    started = context.step.started_at or context.now
    held = timedelta(seconds=context.step.progress.get("held_seconds", 0))
    return started + held + timedelta(seconds=context.step.args["seconds"])


def _evict(context: Context, left: Sequence[port.Pod]) -> dict[str, list[str]]:
    """Asks once for each pod that is not leaving yet; returns the refused with the budgets that refuse."""
    if "asked" not in context.step.progress:
        context.remember(asked=True)
    blocked: dict[str, list[str]] = {}
    for pod in left:
        if pod.deleting:
            continue
        name = f"{pod.namespace}/{pod.name}"
        # uid: a pod that took this one's name since the list is not touched (invariant 25).
        evict = partial(context.kube.evict, pod.namespace, pod.name, uid=pod.uid)
        answer = context.write("evict", evict, subject=f"pod {name}", destructive=True, data={"uid": pod.uid})
        if isinstance(answer, port.Blocked):
            blocked[name] = list(answer.budgets)
        elif isinstance(answer, port.Evicted):
            context.remember(evicted=[*context.step.progress.get("evicted", ()), name])
    return blocked


def _out_of_time(context: Context, left: Sequence[port.Pod]) -> Outcome:
    """What the rule says about pods that would not go: hold, proceed without them, or force them out."""
    names = _names(left)
    context.remember(left=[f"{pod.namespace}/{pod.name}" for pod in left])
    match context.step.args.get("on_timeout", "hold"):
        case "proceed":
            return Done(f"time is up; going on with {_counted(len(left))} left: {names}")
        case "force":
            if context.now - _deadline(context) > FORCED_WITHIN:
                return Hold(f"{_counted(len(left))} did not go even by force: {names}; is the kubelet alive?")
            for pod in left:
                if not pod.deleting:
                    _force(context, pod)
            return Wait(POLL_SECONDS, f"time is up; {_counted(len(left))} deleted by force: {names}")
        case _:
            return Hold(f"the drain's time is up with {_counted(len(left))} left: {names}")


def _force(context: Context, pod: port.Pod) -> None:
    context.write(
        "delete",
        lambda: context.kube.delete_pod(pod.namespace, pod.name, uid=pod.uid),
        subject=f"pod {pod.namespace}/{pod.name}",
        destructive=True,
        data={"uid": pod.uid, "forced": True},
    )


def _counted(pods: int) -> str:
    return "1 pod" if pods == 1 else f"{pods} pods"


def _names(pods: Sequence[port.Pod]) -> str:
    names = sorted(f"{pod.namespace}/{pod.name}" for pod in pods)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _clock(moment: datetime) -> str:
    return moment.strftime("%H:%M:%S UTC")
