"""The port: what the portal asks of a cluster. ``live.LiveCluster`` and ``fake.FakeCluster`` both are one.

Every verb is idempotent and says the wanted end. Every verb raises ``Unavailable`` (ask later; ``ambiguous`` when a
write may have happened) or ``Refused`` (asking again will not help); what else it raises is said there. Instances are
safe to use from many threads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from kcover_portal.kube.errors import Conflict, Expired, KubeError, NotFound, RefusedByServer, Unavailable
from kcover_portal.kube.values import (
    COMPONENT,
    JOB_LABELS,
    KUBEFLOW_JOB_LABEL,
    WORKLOADS,
    Blocked,
    Budget,
    ClaimSpec,
    ClaimState,
    ContainerFailure,
    EventDraft,
    EventEvent,
    EventList,
    Evicted,
    Eviction,
    Gone,
    JobSpec,
    JobState,
    Node,
    NodeChange,
    NodeEvent,
    NodeList,
    Pod,
    PodEvent,
    Requirement,
    SeenEvent,
    Taint,
    TokenIdentity,
    Wanted,
    Workload,
    WorkloadKind,
)

__all__ = [
    "COMPONENT",
    "JOB_LABELS",
    "KUBEFLOW_JOB_LABEL",
    "WORKLOADS",
    "Blocked",
    "Budget",
    "ClaimSpec",
    "ClaimState",
    "Cluster",
    "Conflict",
    "ContainerFailure",
    "EventDraft",
    "EventEvent",
    "EventList",
    "Evicted",
    "Eviction",
    "Expired",
    "Gone",
    "JobSpec",
    "JobState",
    "KubeError",
    "Node",
    "NodeChange",
    "NodeEvent",
    "NodeList",
    "NotFound",
    "Pod",
    "PodEvent",
    "RefusedByServer",
    "Requirement",
    "SeenEvent",
    "Taint",
    "TokenIdentity",
    "Unavailable",
    "Wanted",
    "Workload",
    "WorkloadKind",
]


class Cluster(Protocol):
    """One Kubernetes cluster."""

    def version(self) -> str:
        """The server's ``gitVersion``, such as "v1.31.2"."""

    def list_nodes(self) -> NodeList:
        """Every node."""

    def watch_nodes(self, resource_version: str, *, timeout: float) -> Iterator[NodeEvent]:
        """Changes after that resource version, for about ``timeout`` seconds. Raises ``Expired``: list again."""

    def get_node(self, name: str) -> Node:
        """One node, read now. Raises ``NotFound``."""

    def apply_node(
        self, name: str, change: NodeChange | Wanted, *, expect: Callable[[Node], None] | None = None
    ) -> tuple[Node, Node]:
        """Make a node what ``change`` says, in one patch; returns (before, after).

        ``change`` may be a function of the node that the patch is computed from, asked again on each try.

        No write at all when it is so already. ``expect`` sees the node that the patch is computed from, on each try,
        and may raise anything to stop the write. Taints, labels and annotations that ``change`` does not name survive
        byte for byte. Raises ``NotFound``, and ``Conflict`` when others keep changing the node.
        """

    def list_pods(
        self, *, node: str | None = None, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Pod]:
        """The pods on a node, in a namespace, with all these labels; no argument means every pod."""

    def watch_pods(self, resource_version: str | None, *, timeout: float) -> Iterator[PodEvent]:
        """Changes of pods everywhere; None begins with every pod there is, as ADDED. Raises ``Expired``."""

    def evict(
        self, pod_namespace: str, pod_name: str, *, uid: str, grace_seconds: int | None = None, dry_run: bool = False
    ) -> Eviction:
        """Ask for that very pod to go, budgets respected. Raises ``Conflict`` when the server refuses for
        another reason than the uid."""

    def delete_pod(
        self, pod_namespace: str, pod_name: str, *, uid: str, grace_seconds: int | None = None
    ) -> Evicted | Gone:
        """Delete that very pod, whatever budgets say. Raises ``Conflict`` as ``evict`` does."""

    def budgets(self, namespace: str | None = None) -> list[Budget]:
        """The disruption budgets of a namespace, or of all."""

    def emit(self, draft: EventDraft) -> None:
        """Write an Event. Its namespace is created when missing; where that is forbidden, "default" takes the Event."""

    def list_events(self) -> EventList:
        """Every Event that the cluster still has."""

    def watch_events(self, resource_version: str | None, *, timeout: float) -> Iterator[EventEvent]:
        """Changes of Events; None begins with every Event there is, as ADDED. Raises ``Expired``."""

    def ensure_job(self, spec: JobSpec) -> JobState:
        """A Job of that name exists; one that is there is left alone. Raises ``NotFound`` without its namespace."""

    def job_state(self, namespace: str, name: str) -> JobState:
        """How that Job is; ``exists=False`` when it is not there."""

    def delete_job(self, namespace: str, name: str) -> None:
        """That Job and its pods are gone, or going."""

    def ensure_claim(self, spec: ClaimSpec) -> ClaimState:
        """A claim of that name exists; one that is there is left alone. Raises ``NotFound`` without its namespace."""

    def claim_state(self, namespace: str, name: str) -> ClaimState:
        """How that claim is; ``exists=False`` when it is not there."""

    def delete_claim(self, namespace: str, name: str) -> None:
        """That claim is gone, or going."""

    def workloads(self, *, labels: Mapping[str, str]) -> list[Workload]:
        """Training jobs of every kind in ``WORKLOADS`` with all these labels; a kind that is not installed has none."""

    def workload(self, namespace: str, kind: str, name: str) -> Workload:
        """One training job. Raises ``NotFound``, also for a kind that is not in ``WORKLOADS`` or not installed."""

    def label_workload(self, namespace: str, kind: str, name: str, *, labels: Mapping[str, str | None]) -> Workload:
        """Set (or, with None, remove) labels of a training job. Raises ``NotFound``."""

    def review_token(self, token: str, *, audiences: Sequence[str]) -> TokenIdentity | None:
        """Whose token this is; None when it is nobody's, or for none of these audiences (empty = the server's own)."""
