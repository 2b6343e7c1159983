"""The port: the operations on a cluster. ``live.LiveCluster`` and ``fake.FakeCluster`` implement it.

Every verb is idempotent and states the wanted result. Every verb can raise ``Unavailable`` (retry later; ``ambiguous``
if a write may have happened) and ``RefusedByServer`` (a retry does not help). Other errors are documented at the verb.
Instances are thread-safe.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from kcover_portal.kube.custom_object_port import CustomObjects
from kcover_portal.kube.errors import (
    BookmarksRefused as BookmarksRefused,
    Conflict as Conflict,
    Expired as Expired,
    KubeError as KubeError,
    NotFound as NotFound,
    RefusedByServer as RefusedByServer,
    Unavailable as Unavailable,
)
from kcover_portal.kube.values import (
    COMPONENT as COMPONENT,
    DEVICE_TAINT_RULES as DEVICE_TAINT_RULES,
    GPU_RESET as GPU_RESET,
    JOB_LABELS as JOB_LABELS,
    KUBEFLOW_JOB_LABEL as KUBEFLOW_JOB_LABEL,
    KUEUE_POD_GROUP_LABEL as KUEUE_POD_GROUP_LABEL,
    KUEUE_TAS_LABEL as KUEUE_TAS_LABEL,
    MACHINE as MACHINE,
    MACHINE_VERSIONS as MACHINE_VERSIONS,
    NODE_CLAIM as NODE_CLAIM,
    POLICY_KINDS as POLICY_KINDS,
    PREFLIGHT_REPORT as PREFLIGHT_REPORT,
    PROTECTED_LABEL as PROTECTED_LABEL,
    REBOOT_NODE as REBOOT_NODE,
    RESOURCE_SLICES as RESOURCE_SLICES,
    WORKLOADS as WORKLOADS,
    Blocked as Blocked,
    Budget as Budget,
    ClaimSpec as ClaimSpec,
    ClaimState as ClaimState,
    ContainerFailure as ContainerFailure,
    CustomKind as CustomKind,
    CustomObject as CustomObject,
    DesiredChange as DesiredChange,
    EventDraft as EventDraft,
    EventEvent as EventEvent,
    EventList as EventList,
    Evicted as Evicted,
    Eviction as Eviction,
    Gone as Gone,
    JobMethod as JobMethod,
    JobSpec as JobSpec,
    JobState as JobState,
    LeaseClaim as LeaseClaim,
    LeaseDraft as LeaseDraft,
    LeaseHolder as LeaseHolder,
    Node as Node,
    NodeChange as NodeChange,
    NodeEvent as NodeEvent,
    NodeList as NodeList,
    Phase as Phase,
    Pod as Pod,
    PodEvent as PodEvent,
    Requirement as Requirement,
    Right as Right,
    SeenEvent as SeenEvent,
    StatedCondition as StatedCondition,
    Taint as Taint,
    TokenIdentity as TokenIdentity,
    Workload as Workload,
    WorkloadKind as WorkloadKind,
)


class Cluster(CustomObjects, Protocol):
    """One Kubernetes cluster."""

    def version(self) -> str:
        """The server's ``gitVersion``, such as "v1.31.2"."""

    def is_allowed(self, right: Right) -> bool:
        """Returns whether the server would allow this account to use the right (a SelfSubjectAccessReview)."""

    def list_nodes(self) -> NodeList:
        """Returns all nodes."""

    def count_nodes(self) -> int:
        """Returns how many nodes there are, from a list of one."""

    def watch_nodes(self, resource_version: str, *, timeout: float) -> Iterator[NodeEvent]:
        """Yields changes after that resource version for about ``timeout`` seconds. Raises ``Expired``: list again."""

    def get_node(self, name: str) -> Node:
        """Reads one node. Raises ``NotFound``."""

    def apply_node(
        self, name: str, change: NodeChange | DesiredChange, *, expect: Callable[[Node], None] | None = None
    ) -> tuple[Node, Node]:
        """Applies ``change`` to a node in one patch and returns (before, after).

        ``change`` can be a function of the node that the patch is computed from; it is called again on each try.
        Nothing is written if the node is already in the wanted state. ``expect`` receives the node on each try and may
        raise any exception to stop the write. Taints, labels and annotations that ``change`` does not name stay
        unchanged. Raises ``NotFound``, and ``Conflict`` if others keep changing the node.
        """

    def list_pods(
        self,
        *,
        node: str | None = None,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        having: str = "",
        failed: bool = False,
    ) -> list[Pod]:
        """Returns the pods on a node, in a namespace, with all these labels. Without arguments: all pods.

        ``having``: the key of a label that they have, whatever its value. ``failed``: only those of which a container
        failed, now or before its restart. The others are never all in memory.
        """

    def pods_version(self) -> str:
        """Returns the resource version of the pods as a whole now: a watch continues from it."""

    def watch_pods(self, resource_version: str, *, timeout: float) -> Iterator[PodEvent]:
        """Yields changes of all pods since this version. Raises ``Expired``."""

    def evict(
        self, pod_namespace: str, pod_name: str, *, uid: str, grace_seconds: int | None = None, dry_run: bool = False
    ) -> Eviction:
        """Evicts the pod with this uid, subject to disruption budgets.

        Raises ``Conflict`` if the server rejects the eviction and the uid is not the reason.
        """

    def delete_pod(
        self, pod_namespace: str, pod_name: str, *, uid: str, grace_seconds: int | None = None
    ) -> Evicted | Gone:
        """Deletes the pod with this uid regardless of budgets. Raises ``Conflict`` like ``evict``."""

    def pod_log(
        self, namespace: str, name: str, *, container: str, since: datetime, most: int, previous: bool = False
    ) -> bytes:
        """Returns the first ``most`` bytes of a container's log from that second on; each line begins with its time.

        ``previous``: the log of its run before the last restart. A log that does not exist is empty. Raises
        ``NotFound``. The node's kubelet sends the log: ``Unavailable`` does not mean that the API server fails.
        """

    def budgets(self, namespace: str | None = None) -> list[Budget]:
        """Returns the disruption budgets of one namespace or of all."""

    def emit(self, draft: EventDraft) -> None:
        """Writes an Event. Creates its namespace if missing; if that is forbidden, writes it to "default"."""

    def list_events(self) -> EventList:
        """Returns every Event that the cluster still has."""

    def watch_events(self, resource_version: str, *, timeout: float) -> Iterator[EventEvent]:
        """Yields changes of Events since this version. Raises ``Expired``."""

    def ensure_job(self, spec: JobSpec) -> JobState:
        """Creates a Job unless one of that name exists, and returns its state; ``labels`` say whose it is.

        Raises ``NotFound`` if the namespace does not exist.
        """

    def job_state(self, namespace: str, name: str) -> JobState:
        """Returns the state of a Job; ``exists=False`` if there is none."""

    def delete_job(self, namespace: str, name: str) -> None:
        """Deletes a Job and its pods; they may still be terminating on return."""

    def ensure_claim(self, spec: ClaimSpec) -> ClaimState:
        """Creates a claim unless one of that name exists. Raises ``NotFound`` if the namespace does not exist."""

    def claim_state(self, namespace: str, name: str) -> ClaimState:
        """Returns the state of a claim; ``exists=False`` if there is none."""

    def delete_claim(self, namespace: str, name: str) -> None:
        """Deletes a claim; it may still be terminating on return."""

    def lease_annotations(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """Returns the annotations of a Lease; None if there is none."""

    def keep_lease(self, draft: LeaseDraft) -> None:
        """Makes a Lease as the draft says, or renews it. Raises ``NotFound`` if the namespace does not exist."""

    def lease_holder(self, namespace: str, name: str) -> LeaseHolder | None:
        """Returns who holds a Lease of leader election; None if there is none."""

    def claim_lease(self, claim: LeaseClaim) -> None:
        """Takes, renews or releases it. Raises ``Conflict`` if it has changed, ``NotFound`` without its namespace."""

    def workloads(
        self, *, labels: Mapping[str, str] | None = None, kind: str | None = None, namespace: str | None = None
    ) -> list[Workload]:
        """Returns training jobs with all these labels, of one kind or of every kind in ``WORKLOADS``.

        A kind that is not installed has none.
        """

    def workload(self, namespace: str, kind: str, name: str) -> Workload:
        """Returns a training job. Raises ``NotFound``, also if its kind is not in ``WORKLOADS`` or not installed."""

    def label_workload(self, namespace: str, kind: str, name: str, *, labels: Mapping[str, str | None]) -> Workload:
        """Sets labels of a training job; None removes a label. Raises ``NotFound``."""

    def suspend_workload(self, namespace: str, kind: str, name: str, *, uid: str) -> Workload:
        """Suspends the training job with this uid: its controller ends its pods and keeps the object.

        Raises ``NotFound``, ``Conflict`` if another job has the name now, ``RefusedByServer`` if the kind has no such
        field.
        """

    def exclude_hosts(self, namespace: str, kind: str, name: str, *, uid: str, hosts: Sequence[str]) -> Workload:
        """Keeps the pods that the training job with this uid creates from now on off nodes, by their hostname labels.

        Does nothing for hosts that are excluded already. Raises ``NotFound``, ``Conflict`` if another job has the name
        now, ``RefusedByServer`` if the kind has no template that may be changed.
        """

    def command_workload(self, namespace: str, kind: str, name: str, *, uid: str, action: str, key: str) -> None:
        """Gives Volcano's controller the Command ``action`` (RestartJob, AbortJob) for the job with this uid.

        A Command with the same ``key`` is not created again while the controller has not taken it.
        """

    def review_token(self, token: str, *, audiences: Sequence[str]) -> TokenIdentity | None:
        """Returns a token's identity; None if it is invalid or for other audiences (empty: the server's own)."""
