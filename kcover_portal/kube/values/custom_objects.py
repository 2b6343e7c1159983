"""Objects of the few custom resources that the portal reads besides training jobs, and of optional built-in kinds."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

MANAGED_BY: Final = "app.kubernetes.io/managed-by"  # label of an object: the system that made it


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomKind:
    """A custom resource, or a built-in kind that not every API server has.

    ``by_users``: other people than admins may create its objects, so a list of them may be as large as they like.
    """

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = False
    by_users: bool = False

    @property
    def api_version(self) -> str:
        """Group and version, as in a manifest."""
        return f"{self.group}/{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedCondition:
    """An entry of an object's ``status.conditions``."""

    type: str
    status: str
    reason: str
    message: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomObject:
    """An object of a ``CustomKind``. ``generation`` counts the changes of its spec, ``version`` all changes.

    ``raw_spec``: the spec as JSON, because decoded ones of a long list take ten times the memory.
    ``deleting``: its deletion was requested. ``owner_uids``: Kubernetes deletes it with the last of these objects.
    ``owned``: a controller made it. ``phase``: of its status, "" if it has
    none; ``completed``: its status has a completion time. ``node``, ``provider_id`` and ``system_uuid``: the node that
    it stands for, as a Machine or NodeClaim states it. ``managed``: the portal made it, as its label says.
    """

    kind: CustomKind
    name: str
    uid: str
    namespace: str = ""
    generation: int = 0
    version: str = ""
    created_at: datetime | None = None
    raw_spec: bytes = b"{}"
    conditions: tuple[StatedCondition, ...] = ()
    deleting: bool = False
    managed: bool = False
    owner_uids: frozenset[str] = frozenset()
    owned: bool = False
    phase: str = ""
    completed: bool = False
    node: str = ""
    provider_id: str = ""
    system_uuid: str = ""

    @property
    def spec(self) -> Mapping[str, Any]:
        """The spec, decoded now; empty if it is no object, or nested too deeply."""
        try:
            found = msgspec.json.decode(self.raw_spec)
        except (msgspec.DecodeError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


# kcover's, from chart 0.11 on.
PREFLIGHT_REPORT: Final = CustomKind(
    kind="PreflightReport",
    group="kcover.io",
    version="v1alpha1",
    plural="preflightreports",
    namespaced=True,
    by_users=True,
)
POLICY_KINDS: Final = tuple(
    CustomKind(kind=kind, group=group, version="v1", plural=plural, by_users=True)
    for group in ("rescue.ksyun.com", "kcover.io")
    for kind, plural in (("RescuePolicy", "rescuepolicies"), ("WarmStandbyPolicy", "warmstandbypolicies"))
)
# Cluster API (kubernetes-sigs/cluster-api, api/core/v1beta2/machine_types.go, v1.11): spec.providerID,
# status.nodeRef.name and status.nodeInfo.systemUUID. v1beta1 has the same fields.
MACHINE: Final = CustomKind(
    kind="Machine", group="cluster.x-k8s.io", version="v1beta2", plural="machines", namespaced=True
)
MACHINE_VERSIONS: Final = ("v1beta2", "v1beta1")
# Karpenter (kubernetes-sigs/karpenter, pkg/apis/v1/nodeclaim_status.go, v1.0 on): status.nodeName, status.providerID.
NODE_CLAIM: Final = CustomKind(kind="NodeClaim", group="karpenter.sh", version="v1", plural="nodeclaims")
# NVSentinel's janitor (NVIDIA/NVSentinel, janitor/api/v1alpha1/rebootnode_types.go and gpureset_types.go, v0.5 on).
REBOOT_NODE: Final = CustomKind(
    kind="RebootNode", group="janitor.dgxc.nvidia.com", version="v1alpha1", plural="rebootnodes"
)
GPU_RESET: Final = CustomKind(kind="GPUReset", group="janitor.dgxc.nvidia.com", version="v1alpha1", plural="gpuresets")
# Dynamic Resource Allocation (kubernetes/api, resource/<version>/types.go), newest version first. Slices: v1 since
# Kubernetes 1.34. Taint rules: v1alpha3 in 1.33 to 1.35, v1beta2 since 1.36, v1 later. Before v1 they need feature
# gates and --runtime-config (KEP 5055).
RESOURCE_SLICES: Final = tuple(
    CustomKind(kind="ResourceSlice", group="resource.k8s.io", version=version, plural="resourceslices")
    for version in ("v1", "v1beta2", "v1beta1")
)
DEVICE_TAINT_RULES: Final = tuple(
    CustomKind(kind="DeviceTaintRule", group="resource.k8s.io", version=version, plural="devicetaintrules")
    for version in ("v1", "v1beta2", "v1alpha3")
)
