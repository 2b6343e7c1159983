"""The kinds of this API server, with their groups and versions.

One ``Resource`` is one kind of stored object. It may be served under several group versions (PodDisruptionBudgets under
policy/v1 and v1beta1, Events under v1 and events.k8s.io/v1): as in a real cluster, these are the same objects.
"""

from dataclasses import dataclass
from functools import cache

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind of object. ``group`` and ``version``: where it is stored; ``also``: other group versions.

    ``subresources`` are served in addition to ``status`` (see ``has_status``). ``indexed`` lists the fields that
    selectors use so often that the store keeps an index. ``typed`` kinds omit apiVersion and kind in list items, as the
    API server's built-in kinds do. ``unconditional`` kinds may be replaced without a resource version. ``generation``
    counts changes of anything but metadata and status. ``stored`` is False for reviews, which are answered and not
    kept.
    """

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    also: tuple[tuple[str, str], ...] = ()
    has_status: bool = False
    subresources: tuple[str, ...] = ()
    indexed: tuple[str, ...] = ()
    typed: bool = True
    unconditional: bool = True
    generation: bool = False
    stored: bool = True

    @property
    def api_version(self) -> str:
        """``v1``, ``apps/v1`` …"""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> str:
        """The name under which objects are stored: two groups may have kinds of one name."""
        return self.plural if self.typed else f"{self.plural}.{self.group}"

    def served(self) -> tuple[tuple[str, str], ...]:
        """Every (group, version) under which the kind is served."""
        return ((self.group, self.version), *self.also)


def _workload(plural: str, kind: str, short: str) -> Resource:
    return _make("apps", "v1", plural, kind, short=(short,), categories=("all",), has_status=True, generation=True)


def _custom(
    group: str,
    plural: str,
    kind: str,
    *,
    version: str = "v1",
    also: tuple[str, ...] = (),
    namespaced: bool = True,
) -> Resource:
    """A custom resource of an operator: a training job, a group of workers, a policy. ``also``: older versions."""
    more = {"has_status": True, "generation": True, "typed": False, "unconditional": False}
    served = tuple((group, older) for older in also)
    return _make(group, version, plural, kind, namespaced=namespaced, also=served, **more)


def _cluster_wide(group: str, plural: str, kind: str) -> Resource:
    return _make(group, "v1", plural, kind, namespaced=False)


def _make(group: str, version: str, plural: str, kind: str, **more: object) -> Resource:
    return Resource(group=group, version=version, plural=plural, kind=kind, singular=kind.lower(), **more)  # type: ignore[arg-type]


NODES = _make("", "v1", "nodes", "Node", namespaced=False, short=("no",), has_status=True)
PODS = _make(
    "",
    "v1",
    "pods",
    "Pod",
    short=("po",),
    categories=("all",),
    has_status=True,
    subresources=("binding", "eviction", "log"),
    indexed=("spec.nodeName",),
)
NAMESPACES = _make("", "v1", "namespaces", "Namespace", namespaced=False, short=("ns",), has_status=True)
EVENTS = _make(
    "", "v1", "events", "Event", short=("ev",), also=(("events.k8s.io", "v1"),), indexed=("involvedObject.name",)
)
SERVICE_ACCOUNTS = _make("", "v1", "serviceaccounts", "ServiceAccount", short=("sa",), subresources=("token",))
BUDGETS = _make(
    "policy",
    "v1",
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    short=("pdb",),
    also=(("policy", "v1beta1"),),
    has_status=True,
    generation=True,
)
JOBS = _make("batch", "v1", "jobs", "Job", categories=("all",), has_status=True, generation=True)
LEASES = _make("coordination.k8s.io", "v1", "leases", "Lease", unconditional=False)
TOKEN_REVIEWS = _make("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False, stored=False)
ACCESS_REVIEWS = _make(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False, stored=False
)
SELF_ACCESS_REVIEWS = _make(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False, stored=False
)

VOLCANO_JOBS = _custom("batch.volcano.sh", "jobs", "Job", version="v1alpha1")
COMMANDS = _custom("bus.volcano.sh", "commands", "Command", version="v1alpha1")
MACHINES = _custom("cluster.x-k8s.io", "machines", "Machine", version="v1beta2", also=("v1beta1",))
NODE_CLAIMS = _custom("karpenter.sh", "nodeclaims", "NodeClaim", namespaced=False)
REBOOT_NODES, GPU_RESETS = (
    _custom("janitor.dgxc.nvidia.com", plural, kind, version="v1alpha1", namespaced=False)
    for plural, kind in (("rebootnodes", "RebootNode"), ("gpuresets", "GPUReset"))
)
# Dynamic Resource Allocation as in Kubernetes 1.36, with the feature gate DRADeviceTaintRules.
RESOURCE_SLICES = _make(
    "resource.k8s.io",
    "v1",
    "resourceslices",
    "ResourceSlice",
    namespaced=False,
    also=(("resource.k8s.io", "v1beta2"),),
    generation=True,
)
DEVICE_TAINT_RULES = _make(
    "resource.k8s.io",
    "v1beta2",
    "devicetaintrules",
    "DeviceTaintRule",
    namespaced=False,
    also=(("resource.k8s.io", "v1alpha3"),),
    has_status=True,
    generation=True,
)

RESOURCES: tuple[Resource, ...] = (
    NODES,
    PODS,
    NAMESPACES,
    EVENTS,
    SERVICE_ACCOUNTS,
    _make("", "v1", "configmaps", "ConfigMap", short=("cm",)),
    _make("", "v1", "secrets", "Secret"),
    _make("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short=("pvc",), has_status=True),
    _make("", "v1", "services", "Service", short=("svc",), categories=("all",), has_status=True),
    _make("", "v1", "endpoints", "Endpoints", short=("ep",)),
    _workload("daemonsets", "DaemonSet", "ds"),
    _workload("deployments", "Deployment", "deploy"),
    _workload("replicasets", "ReplicaSet", "rs"),
    _workload("statefulsets", "StatefulSet", "sts"),
    JOBS,
    BUDGETS,
    LEASES,
    # Kept and given back, without an effect: what the Helm chart creates besides workloads.
    _make("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short=("netpol",), generation=True),
    _make("networking.k8s.io", "v1", "ingresses", "Ingress", short=("ing",), has_status=True, generation=True),
    _make("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    _make("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    _cluster_wide("rbac.authorization.k8s.io", "clusterroles", "ClusterRole"),
    _cluster_wide("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding"),
    _cluster_wide("scheduling.k8s.io", "priorityclasses", "PriorityClass"),
    _cluster_wide("storage.k8s.io", "storageclasses", "StorageClass"),
    _cluster_wide("admissionregistration.k8s.io", "validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    _cluster_wide(
        "admissionregistration.k8s.io", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"
    ),
    _custom("kubeflow.org", "mpijobs", "MPIJob"),
    _custom("kubeflow.org", "mxjobs", "MXJob"),
    _custom("kubeflow.org", "paddlejobs", "PaddleJob"),
    _custom("kubeflow.org", "pytorchjobs", "PyTorchJob"),
    _custom("kubeflow.org", "tfjobs", "TFJob"),
    _custom("kubeflow.org", "xgboostjobs", "XGBoostJob"),
    _custom("leaderworkerset.x-k8s.io", "leaderworkersets", "LeaderWorkerSet"),
    _custom("jobset.x-k8s.io", "jobsets", "JobSet", version="v1alpha2"),
    _custom("trainer.kubeflow.org", "trainjobs", "TrainJob", version="v1alpha1"),
    _custom("ray.io", "rayclusters", "RayCluster"),
    _custom("ray.io", "rayjobs", "RayJob"),
    _custom("kcover.io", "preflightreports", "PreflightReport", version="v1alpha1"),
    _custom("kcover.io", "rescuepolicies", "RescuePolicy", namespaced=False),
    _custom("kcover.io", "warmstandbypolicies", "WarmStandbyPolicy", namespaced=False),
    _custom("rescue.ksyun.com", "rescuepolicies", "RescuePolicy", namespaced=False),
    _custom("rescue.ksyun.com", "warmstandbypolicies", "WarmStandbyPolicy", namespaced=False),
    MACHINES,
    NODE_CLAIMS,
    REBOOT_NODES,
    GPU_RESETS,
    RESOURCE_SLICES,
    DEVICE_TAINT_RULES,
    VOLCANO_JOBS,
    COMMANDS,
    TOKEN_REVIEWS,
    ACCESS_REVIEWS,
    SELF_ACCESS_REVIEWS,
)  # fmt: skip

Ref = Resource | str | tuple[str, str]


@cache
def served_at(group: str, version: str, plural: str) -> Resource | None:
    """The kind that a path names, or None."""
    for resource in RESOURCES:
        if resource.plural == plural and (group, version) in resource.served():
            return resource
    return None


@cache
def find(ref: Ref) -> Resource:
    """A kind by itself, its name (``"Pod"``, ``"pods"``), its key or (group, plural). Raises KeyError if it is unknown.

    Of two kinds of one name the built-in one is found.
    """
    if isinstance(ref, Resource):
        return ref
    for resource in RESOURCES:
        if isinstance(ref, tuple):
            if any(ref == (group, resource.plural) for group, _ in resource.served()):
                return resource
        elif ref in (resource.kind, resource.plural, resource.key):
            return resource
    raise KeyError(f"no such kind: {ref!r}")


def group_versions() -> dict[str, tuple[str, ...]]:
    """Each group with its versions, the preferred one first."""
    found: dict[str, list[str]] = {}
    for resource in RESOURCES:
        for group, version in resource.served():
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
    return {group: tuple(versions) for group, versions in found.items()}
