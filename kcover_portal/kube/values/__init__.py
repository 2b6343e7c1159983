"""Values read from a cluster and written to it: frozen, with aware times, named as in Kubernetes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kcover_portal.kube.values.access import (
    Right,
)
from kcover_portal.kube.values.custom_objects import (
    DEVICE_TAINT_RULES,
    GPU_RESET,
    MACHINE,
    MACHINE_VERSIONS,
    MANAGED_BY,
    NODE_CLAIM,
    POLICY_KINDS,
    PREFLIGHT_REPORT,
    REBOOT_NODE,
    RESOURCE_SLICES,
    CustomKind,
    CustomObject,
    StatedCondition,
)
from kcover_portal.kube.values.events import (
    COMPONENT,
    EventDraft,
    EventEvent,
    EventList,
    SeenEvent,
)
from kcover_portal.kube.values.jobs import (
    ClaimSpec,
    ClaimState,
    JobSpec,
    JobState,
)
from kcover_portal.kube.values.leases import (
    LeaseClaim,
    LeaseDraft,
    LeaseHolder,
)
from kcover_portal.kube.values.nodes import (
    DesiredChange,
    Node,
    NodeChange,
    NodeEvent,
    NodeList,
    Taint,
)
from kcover_portal.kube.values.pods import (
    Blocked,
    Budget,
    ContainerFailure,
    Evicted,
    Eviction,
    Gone,
    Pod,
    PodEvent,
    Requirement,
)
from kcover_portal.kube.values.tokens import (
    TokenIdentity,
)
from kcover_portal.kube.values.workloads import (
    JOB_LABELS,
    KUBEFLOW_JOB_LABEL,
    KUEUE_POD_GROUP_LABEL,
    KUEUE_TAS_LABEL,
    PROTECTED_LABEL,
    WORKLOADS,
    Phase,
    Verb,
    Workload,
    WorkloadKind,
)

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

__all__ = [
    "COMPONENT",
    "DEVICE_TAINT_RULES",
    "GPU_RESET",
    "JOB_LABELS",
    "KUBEFLOW_JOB_LABEL",
    "KUEUE_POD_GROUP_LABEL",
    "KUEUE_TAS_LABEL",
    "MACHINE",
    "MACHINE_VERSIONS",
    "MANAGED_BY",
    "NODE_CLAIM",
    "NOTHING",
    "POLICY_KINDS",
    "PREFLIGHT_REPORT",
    "PROTECTED_LABEL",
    "REBOOT_NODE",
    "RESOURCE_SLICES",
    "WORKLOADS",
    "Blocked",
    "Budget",
    "ClaimSpec",
    "ClaimState",
    "ContainerFailure",
    "CustomKind",
    "CustomObject",
    "DesiredChange",
    "EventDraft",
    "EventEvent",
    "EventList",
    "Evicted",
    "Eviction",
    "Gone",
    "JobSpec",
    "JobState",
    "LeaseClaim",
    "LeaseDraft",
    "LeaseHolder",
    "Node",
    "NodeChange",
    "NodeEvent",
    "NodeList",
    "Phase",
    "Pod",
    "PodEvent",
    "Requirement",
    "Right",
    "SeenEvent",
    "StatedCondition",
    "Taint",
    "TokenIdentity",
    "Verb",
    "Workload",
    "WorkloadKind",
]
