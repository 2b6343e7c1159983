"""What is read from a cluster and what is asked of it: frozen values, times aware, names as Kubernetes has them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
COMPONENT: Final = "kcover-portal"


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint. API servers tell taints apart by key and effect; it is the portal's if the value is its too."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as far as the portal cares.

    ``annotations`` holds only those under kcover.io/ and autopilot.ibm.com/; ``conditions`` maps type to status
    ("True", "False", "Unknown"); ``ready_since`` is when Ready last turned True, None while it is not; ``gpus`` is the
    capacity over NVIDIA's, AMD's and MetaX's resources.
    """

    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    ready_since: datetime | None = None
    boot_id: str = ""
    gpus: int = 0
    kubelet: str = ""
    internal_ip: str = ""
    resource_version: str = ""
    conditions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """The wanted end of a node; what is not named stays. A label or annotation of None is removed.

    ``add_taints`` sets the value of a taint with the same key and effect, if there is one. ``remove_taints`` removes
    only what equals in key, value and effect: another value is somebody else's taint.
    """

    cordon: bool | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    add_taints: tuple[Taint, ...] = ()
    remove_taints: tuple[Taint, ...] = ()


Wanted = Callable[[Node], NodeChange]  # the wanted end, as a function of the node as it was read


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFailure:
    """A container (not an init container) that has terminated with reason ``Error``, as kcover looks for."""

    name: str
    message: str
    exit_code: int
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod. ``controller``: a controller owns it (``owner_*`` say which), else it is bare.

    ``mirror``: a static pod's shadow. ``terminal``: phase Succeeded or Failed. ``deleting``: a deletionTimestamp is
    set. ``job``: the training job it belongs to by label (Kubeflow's, batch's or LeaderWorkerSet's), "" if none.
    ``gpus`` is what its containers ask for.
    """

    namespace: str
    name: str
    uid: str
    node: str = ""
    phase: str = "Pending"
    ready: bool = False
    owner_kind: str = ""
    owner_name: str = ""
    owner_api: str = ""
    controller: bool = False
    mirror: bool = False
    daemonset: bool = False
    deleting: bool = False
    terminal: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    job: str = ""
    restart_policy: str = "Always"
    failures: tuple[ContainerFailure, ...] = ()
    resource_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One ``matchExpressions`` entry: operator is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy it (NotIn is also true for a missing key, as in the API server)."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A PodDisruptionBudget; ``selects_nothing`` when its selector is one that matches no pod at all."""

    namespace: str
    name: str
    match_labels: Mapping[str, str] = field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()
    selects_nothing: bool = False
    disruptions_allowed: int = 0

    def covers(self, pod: Pod) -> bool:
        """Whether the budget protects this pod."""
        return (
            not self.selects_nothing
            and pod.namespace == self.namespace
            and all(pod.labels.get(key) == value for key, value in self.match_labels.items())
            and all(requirement.matches(pod.labels) for requirement in self.match_expressions)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeList:
    """Every node at one moment; a watch goes on from ``resource_version``."""

    items: tuple[Node, ...]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """What a watch says. ``kind``: ADDED, MODIFIED, DELETED, or BOOKMARK (no node, only how far the watch has come)."""

    kind: str
    node: Node | None
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """As ``NodeEvent``, about a pod."""

    kind: str
    pod: Pod | None
    resource_version: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """The API server took it: the pod is on its way out, with its grace period still running."""


@dataclass(frozen=True, slots=True)
class Gone:
    """That very pod (by uid) is not there any more; one of the same name may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A disruption budget refused. ``budgets`` are its names, ``retry_after`` the server's seconds, if it named any."""

    reason: str
    budgets: tuple[str, ...] = ()
    retry_after: float | None = None


Eviction = Evicted | Gone | Blocked


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDraft:
    """A Kubernetes Event to write. ``name`` makes it idempotent; ``type`` is Normal or Warning."""

    name: str
    namespace: str
    reason: str
    message: str
    type: str
    involved_kind: str
    involved_name: str
    involved_uid: str
    at: datetime
    component: str = COMPONENT


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEvent:
    """A Kubernetes Event that is there. ``component`` is reportingComponent, else source.component; ``last_at`` the
    last timestamp, else eventTime, else its creation."""

    namespace: str
    name: str
    uid: str
    reason: str
    type: str
    message: str
    count: int
    involved_kind: str
    involved_name: str
    involved_namespace: str
    annotations: Mapping[str, str]
    component: str
    last_at: datetime | None
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventList:
    """Every Event at one moment; a watch goes on from ``resource_version``."""

    items: tuple[SeenEvent, ...]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventEvent:
    """As ``NodeEvent``, about a Kubernetes Event."""

    kind: str
    event: SeenEvent | None
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A one-shot Job pinned to a node (past the scheduler, so that a cordoned node takes it), never retried."""

    name: str
    namespace: str
    node: str
    image: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    host_pid: bool = False
    privileged: bool = False
    deadline_seconds: int = 600
    service_account: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """How a Job is; ``reason`` is that of its Failed condition, such as DeadlineExceeded."""

    exists: bool
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSpec:
    """A claim of storage that many nodes may write to; ``storage_class`` "" is the cluster's default."""

    name: str
    namespace: str
    size: str = "100Mi"
    storage_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimState:
    """How a claim is; ``phase`` is Kubernetes' word: Pending, Bound, Lost. One that is going does not exist."""

    exists: bool
    phase: str = ""

    @property
    def bound(self) -> bool:
        """Whether storage was found for it."""
        return self.exists and self.phase == "Bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A training job's object, whatever its kind; ``kind`` is one of ``WORKLOADS``."""

    kind: str
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """Where a kind of training job is served, and the label that its pods carry with its name."""

    kind: str
    group: str
    version: str
    plural: str
    pod_label: str


KUBEFLOW_JOB_LABEL: Final = "training.kubeflow.org/job-name"
# kcover's RBAC reads Kubeflow's job kinds and batch Jobs; its preflight knows LeaderWorkerSet too.
WORKLOADS: Final[Mapping[str, WorkloadKind]] = MappingProxyType(
    {
        kind: WorkloadKind(kind=kind, group=group, version="v1", plural=plural, pod_label=label)
        for kind, group, plural, label in (
            ("PyTorchJob", "kubeflow.org", "pytorchjobs", KUBEFLOW_JOB_LABEL),
            ("TFJob", "kubeflow.org", "tfjobs", KUBEFLOW_JOB_LABEL),
            ("MPIJob", "kubeflow.org", "mpijobs", KUBEFLOW_JOB_LABEL),
            ("MXJob", "kubeflow.org", "mxjobs", KUBEFLOW_JOB_LABEL),
            ("XGBoostJob", "kubeflow.org", "xgboostjobs", KUBEFLOW_JOB_LABEL),
            ("PaddleJob", "kubeflow.org", "paddlejobs", KUBEFLOW_JOB_LABEL),
            ("Job", "batch", "jobs", "batch.kubernetes.io/job-name"),
            ("LeaderWorkerSet", "leaderworkerset.x-k8s.io", "leaderworkersets", "leaderworkerset.sigs.k8s.io/name"),
        )
    }
)
# How a pod says which training job it belongs to, the most telling first; the last is batch's from before 1.27.
JOB_LABELS: Final = (
    KUBEFLOW_JOB_LABEL,
    "leaderworkerset.sigs.k8s.io/name",
    "batch.kubernetes.io/job-name",
    "job-name",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIdentity:
    """Whom a token belongs to. ``service_account`` is "namespace/name"; node and pod if it is bound to them.

    Before Kubernetes 1.30 a pod's token names its pod only, and ``node_name`` is None.
    """

    username: str
    groups: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ()
    node_name: str | None = None
    pod_name: str | None = None
    pod_uid: str | None = None
    service_account: str | None = None
