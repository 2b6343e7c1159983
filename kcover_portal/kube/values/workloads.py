"""The kinds of the users' training jobs, and how each is found, restarted and stopped: one table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

PROTECTED_LABEL: Final = "kcover.io/cascading-recovery"  # "true": the owner of the job consents to a restart
KUBEFLOW_JOB_LABEL: Final = "training.kubeflow.org/job-name"
JOBSET_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
VOLCANO_LABEL: Final = "volcano.sh/job-name"
RAY_LABEL: Final = "ray.io/cluster"
LWS_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
BATCH_LABEL: Final = "batch.kubernetes.io/job-name"
KUEUE_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"  # of a job, or of a pod without one
KUEUE_POD_GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"  # of pods that are one workload without a job
KUEUE_TAS_LABEL: Final = "kueue.x-k8s.io/tas"  # of pods that Kueue's topology-aware scheduling assigned to nodes


class JobMethod(StrEnum):
    """The method by which a job is restarted or stopped."""

    DELETE_PODS = "delete_pods"  # its controller creates them again
    COMMAND = "command"  # a Command of Volcano: single deletions could leave a gang below minAvailable
    SUSPEND = "suspend"  # a field of its spec
    NONE = ""


class Phase(StrEnum):
    """The state in the job's own status; RUNNING also before it has begun."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """The API of a kind of training job.

    ``kind``: its name in the portal; ``served_as``: its name in the API, where that differs. ``pod_label``: the label
    of its pods that holds its name, or what ``named_by`` points to in the object; "": pods are found by their owner.
    ``replicas``: the path of the roles, each with a pod ``template`` that may be changed and from which its controller
    creates pods again; (): there is none. ``changed``: the portal may change its objects. ``suspend``: the path of the
    field that suspends it. ``never_is_final``: pods with ``restartPolicy: Never`` are never created again.
    """

    kind: str
    group: str
    version: str
    plural: str
    pod_label: str
    served_as: str = ""
    named_by: tuple[str, ...] = ("metadata", "name")
    restart: JobMethod = JobMethod.DELETE_PODS
    stop: JobMethod = JobMethod.SUSPEND
    suspend: tuple[str, ...] = ("spec", "suspend")
    replicas: tuple[str, ...] = ()
    never_is_final: bool = False
    changed: bool = True

    @property
    def api_kind(self) -> str:
        """The kind as the API server calls it."""
        return self.served_as or self.kind

    def owns(self, kind: str, api: str) -> bool:
        """Returns whether an owner reference of this ``kind`` and ``apiVersion`` names an object of this kind."""
        return kind == self.api_kind and api.partition("/")[0] == self.group


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A training job of any kind in ``WORKLOADS``.

    ``pods_named``: the value of the kind's ``pod_label``. ``owner_*``: its own controller. ``restarts``: as its
    controller counts them. ``excluded_hosts``: hostname labels that its templates exclude. ``protected``: it, or a
    template of its pods, has the label of consent. ``queue``: Kueue's queue, "" if Kueue does not manage it.
    ``generation``: changes with its spec.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    generation: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pods_named: str = ""
    owner_kind: str = ""
    owner_api: str = ""
    owner_name: str = ""
    owner_uid: str = ""
    phase: Phase = Phase.RUNNING
    restarts: int = 0
    created_at: datetime | None = None
    excluded_hosts: frozenset[str] = frozenset()
    protected: bool = False

    @property
    def queue(self) -> str:
        """The queue of Kueue that decides when the job runs."""
        return self.labels.get(KUEUE_QUEUE_LABEL, "")


def _kinds() -> Mapping[str, WorkloadKind]:
    kubeflow = [
        WorkloadKind(
            kind=kind,
            group="kubeflow.org",
            version="v1",
            plural=f"{kind.lower()}s",
            pod_label=KUBEFLOW_JOB_LABEL,
            suspend=("spec", "runPolicy", "suspend"),
            replicas=("spec", replicas),
            never_is_final=True,
        )
        for kind, replicas in (
            ("PyTorchJob", "pytorchReplicaSpecs"),
            ("TFJob", "tfReplicaSpecs"),
            ("MPIJob", "mpiReplicaSpecs"),
            ("MXJob", "mxReplicaSpecs"),
            ("XGBoostJob", "xgbReplicaSpecs"),
            ("PaddleJob", "paddleReplicaSpecs"),
        )
    ]
    others = [
        WorkloadKind(kind="Job", group="batch", version="v1", plural="jobs", pod_label=BATCH_LABEL),
        WorkloadKind(
            kind="LeaderWorkerSet",
            group="leaderworkerset.x-k8s.io",
            version="v1",
            plural="leaderworkersets",
            pod_label=LWS_LABEL,
            stop=JobMethod.NONE,
        ),
        WorkloadKind(
            kind="JobSet", group="jobset.x-k8s.io", version="v1alpha2", plural="jobsets", pod_label=JOBSET_LABEL
        ),
        # Kubeflow Trainer runs each TrainJob as a JobSet of the same name.
        WorkloadKind(
            kind="TrainJob",
            group="trainer.kubeflow.org",
            version="v1alpha1",
            plural="trainjobs",
            pod_label=JOBSET_LABEL,
        ),
        WorkloadKind(kind="RayCluster", group="ray.io", version="v1", plural="rayclusters", pod_label=RAY_LABEL),
        WorkloadKind(
            kind="RayJob",
            group="ray.io",
            version="v1",
            plural="rayjobs",
            pod_label=RAY_LABEL,
            named_by=("status", "rayClusterName"),
        ),
        WorkloadKind(
            kind="VolcanoJob",
            served_as="Job",
            group="batch.volcano.sh",
            version="v1alpha1",
            plural="jobs",
            pod_label=VOLCANO_LABEL,
            restart=JobMethod.COMMAND,
            stop=JobMethod.COMMAND,
        ),
        WorkloadKind(
            kind="StatefulSet",
            group="apps",
            version="v1",
            plural="statefulsets",
            pod_label="",
            stop=JobMethod.NONE,
            changed=False,  # whoever may change one may run any pod, and StatefulSets also belong to the cluster itself
        ),
    ]
    return MappingProxyType({known.kind: known for known in (*kubeflow, *others)})


WORKLOADS: Final[Mapping[str, WorkloadKind]] = _kinds()
# Labels of a pod that name its training job, the most specific first: a JobSet's or RayJob's pods also carry the label
# of a batch Job, which is never restarted alone. The last label is that of batch before 1.27.
JOB_LABELS: Final = (
    KUBEFLOW_JOB_LABEL,
    JOBSET_LABEL,
    VOLCANO_LABEL,
    RAY_LABEL,
    LWS_LABEL,
    BATCH_LABEL,
    "job-name",
)
