"""Jobs of the portal, claims of storage, and the training jobs of users."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final


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
