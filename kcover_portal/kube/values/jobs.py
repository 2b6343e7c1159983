"""The portal's Jobs, PersistentVolumeClaims, and the users' training jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A Job that runs once on one node. It bypasses the scheduler, so that it also runs on a cordoned node."""

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
    """The state of a Job. ``reason`` is that of its Failed condition, such as DeadlineExceeded."""

    exists: bool
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSpec:
    """A ReadWriteMany claim; ``storage_class`` "" is the cluster's default."""

    name: str
    namespace: str
    size: str = "100Mi"
    storage_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimState:
    """The state of a claim. ``phase`` is Pending, Bound or Lost. A terminating claim counts as not existing."""

    exists: bool
    phase: str = ""

    @property
    def bound(self) -> bool:
        """True if the claim is bound to storage."""
        return self.exists and self.phase == "Bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A training job of any kind in ``WORKLOADS``."""

    kind: str
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """The API of a kind of training job, and the label of its pods that holds the job's name."""

    kind: str
    group: str
    version: str
    plural: str
    pod_label: str


KUBEFLOW_JOB_LABEL: Final = "training.kubeflow.org/job-name"
# kcover's RBAC covers Kubeflow's job kinds and batch Jobs; its preflight supports LeaderWorkerSet too.
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
# Labels of a pod that name its training job, the most specific first; the last is that of batch before 1.27.
JOB_LABELS: Final = (
    KUBEFLOW_JOB_LABEL,
    "leaderworkerset.sigs.k8s.io/name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
