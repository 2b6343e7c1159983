"""Let the drains of one Kueue workload take turns, so that two of its nodes never lose their pods at once.

Kueue's topology-aware scheduling replaces one failed node of a workload. If it loses a second one before that, Kueue
evicts the whole workload (kubernetes-sigs/kueue#14244). So a drain claims the workloads of its node before its first
eviction. Another drain waits until the pods of the first one have left and as many pods run as before.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Q, QuerySet

from kcover import reasons
from kcover.actions import drain as core
from kcover.plans import lifecycle
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port
from kcover_portal.rescue.models import Step
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.jobs import checkpoint_times
from kcover_portal.rescue.step.outcomes import Hold, Outcome, Wait
from kcover_portal.workloads import training_jobs

POLL_SECONDS = 2.0
MAX_NAMES_SHOWN = 8  # workloads in a sentence
SWAP_TIME_LIMIT = timedelta(minutes=15)  # as long as a restarted job may take; counted from the end of a rescue


@dataclass(frozen=True, slots=True)
class _Workload:
    """``running``: how many of its pods run. ``loses``: pods on other nodes are leaving, or wait for a node."""

    running: int
    loses: bool


def wait(context: Context, pods: Sequence[port.Pod]) -> Outcome | None:
    """Returns the wait for another drain of a workload of ``pods``, those to be evicted; None if the drain may begin.

    The wait ends with a person after the drain's time limit.
    """
    progress, args = context.step.progress_as(core.Progress), context.step.args_as(core.Args)
    if args.kueue_together or progress.eviction_requested or progress.workloads:
        return None
    found = _pods_of_workloads(context.kube, pods)
    if not found:
        return None
    over = frozenset(claim.pk for claim in _claims(context) if _is_over(claim))
    workloads = {name: _look(context.kube, where, here=context.node.name) for name, where in found.items()}
    since = progress.turn_since or context.now
    until = since + timedelta(seconds=args.seconds)
    why = _claim(context, workloads, over=over, until=reasons.moment(until))
    if why is None:
        return None
    if progress.turn_since is None:
        context.remember(turn_since=since)
    if context.now >= until:
        return Hold(reasons.both(why, reasons.of("workload_turn_late")))
    return Wait(POLL_SECONDS, why)


def _claim(
    context: Context, workloads: Mapping[str, _Workload], *, over: Collection[int], until: str
) -> reasons.Reason | None:
    """Claims the workloads, or none of them: then it returns the reason to wait.

    ``over``: the claims of drains that had ended before the pods of the workloads were read.
    """
    with transaction.atomic():
        # The cluster's row before the rescue's, as guards lock them.
        Cluster.objects.select_for_update(no_key=True).get(pk=context.cluster.pk)
        for claim in _claims(context):
            claimed = claim.progress_as(core.Progress).workloads
            if claim.pk not in over and (shared := sorted(workloads.keys() & claimed.keys())):
                names = reasons.named(shared, most=MAX_NAMES_SHOWN)
                return reasons.of(
                    "workload_drained",
                    workloads=names,
                    node=claim.rescue.node.name,
                    rescue=claim.rescue_id,
                    until=until,
                )
        late = _not_whole(context, workloads)
        if late:
            return reasons.of("workload_not_whole", workloads=reasons.named(late, most=MAX_NAMES_SHOWN), until=until)
        waited = context.step.progress_as(core.Progress).turn_since is not None
        running = {name: workload.running for name, workload in workloads.items()}
        context.remember(workloads=running, turn_over=context.now if waited else None)
        return None


def _not_whole(context: Context, workloads: Mapping[str, _Workload]) -> list[str]:
    """The workloads that lose pods elsewhere, or that have fewer than before the drain of another node."""
    wanted: dict[str, int] = {}
    for claim in _claims(context):
        for name, running in claim.progress_as(core.Progress).workloads.items():
            wanted[name] = max(running, wanted.get(name, 0))
    return sorted(name for name, it in workloads.items() if it.loses or it.running < wanted.get(name, 0))


def _claims(context: Context) -> QuerySet[Step]:
    """The drains of other nodes that claimed workloads, of rescues that are open or ended lately."""
    recent = Q(rescue__state__in=lifecycle.OPEN_RESCUE) | Q(rescue__closed_at__gt=context.now - SWAP_TIME_LIMIT)
    rows = Step.objects.filter(recent, name="drain", rescue__cluster=context.cluster, progress__has_key="workloads")
    return rows.exclude(rescue__node=context.node).select_related("rescue__node").order_by("pk")


def _is_over(claim: Step) -> bool:
    """Returns whether the drain evicts nothing any more."""
    return claim.state in lifecycle.FINISHED_STEP or claim.rescue.state in lifecycle.CLOSED_RESCUE


def _pods_of_workloads(
    cluster: port.Cluster, pods: Sequence[port.Pod]
) -> Mapping[str, training_jobs.Job | tuple[str, str]]:
    """The Kueue workloads of these pods by name: a job, or the namespace and name of a pod group.

    Jobs that the portal may not read do not delay a drain.
    """
    found: dict[str, training_jobs.Job | tuple[str, str]] = {}
    alone = []
    for pod in pods:
        group = pod.labels.get(port.KUEUE_POD_GROUP_LABEL, "")
        if group:
            found[f"{pod.namespace}/{group}"] = pod.namespace, group
        else:
            alone.append(pod)
    try:
        jobs = training_jobs.find(cluster, alone)
    except port.RefusedByServer:
        return found
    queued = [job for job, own in jobs.items() if job.queue or training_jobs.is_swapped(own)]
    return {**found, **{checkpoint_times.key(job): job for job in queued}}


def _look(cluster: port.Cluster, where: training_jobs.Job | tuple[str, str], *, here: str) -> _Workload:
    if isinstance(where, tuple):
        pods = cluster.list_pods(namespace=where[0], labels={port.KUEUE_POD_GROUP_LABEL: where[1]})
    else:
        pods = training_jobs.pods_of(cluster, where)
    return _Workload(
        running=sum((pod.ready or pod.phase == "Succeeded") and not pod.deleting for pod in pods),
        loses=any(pod.node != here and not pod.terminal and (pod.deleting or not pod.node) for pod in pods),
    )
