"""What runs on a node, and which rules would act on its faults."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kcover import reasons
from kcover.decisions import match
from kcover.policy import modes
from kcover_portal.accounts import queries as accounts
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.jobs import queries as jobs
from kcover_portal.kube import port
from kcover_portal.policies import queries as policies
from kcover_portal.rescue.actions import drain
from kcover_portal.rescue.step import errors

MAX_PODS: Final = 100


@dataclass(frozen=True, slots=True)
class NodePod:
    """A pod on the node; ``moves``: a drain would evict it."""

    pod: port.Pod
    moves: bool


@dataclass(frozen=True, slots=True)
class NodeWork:
    """The jobs and pods of a node, pods with GPUs first. ``unavailable``: why the cluster's answer is missing.

    ``more``: how many pods are left out.
    """

    jobs: Sequence[jobs.JobView]
    pods: Sequence[NodePod]
    more: int
    unavailable: reasons.Reason | None = None


@dataclass(frozen=True, slots=True)
class NodeRule:
    """A rule that selects the node, in the strictest mode of installation, cluster and rule."""

    candidate: match.Candidate
    mode: str


def of(node: Node, scope: accounts.Scope, *, now: datetime) -> NodeWork:
    """Asks the cluster for the pods that have not ended. One call, and one more for the jobs if they are not known."""
    try:
        found = [pod for pod in fleet.connect(node.cluster).list_pods(node=node.name) if not pod.terminal]
    except port.KubeError as error:
        return NodeWork((), (), 0, errors.reason_of(error))
    views, _silent = jobs.jobs([node.cluster], scope, now=now)
    moving = {pod.uid for pod in drain.in_the_way(found)}
    found.sort(key=lambda pod: (-pod.gpus, pod.uid not in moving, pod.namespace, pod.name))
    return NodeWork(
        [job for job in views if node.name in job.nodes],
        [NodePod(pod, pod.uid in moving) for pod in found[:MAX_PODS]],
        max(0, len(found) - MAX_PODS),
    )


def rules(node: Node) -> list[NodeRule]:
    """The active rules that select the node, in the order in which they are tried."""
    mode = modes.strictest(fleet.mode_of(node.cluster)[0], fleet.own_mode(node.cluster))
    return [
        NodeRule(one, modes.strictest(mode, one.rule.mode))
        for one in match.rank(policies.candidates(node.cluster_id))
        if match.label_refusal(one.rule, node.labels) is None
    ]
