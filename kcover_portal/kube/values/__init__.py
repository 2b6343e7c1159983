"""Values read from a cluster and written to it: frozen, with aware times, named as in Kubernetes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kcover_portal.kube.values.access import Right as Right
from kcover_portal.kube.values.custom_objects import (
    DEVICE_TAINT_RULES as DEVICE_TAINT_RULES,
    GPU_RESET as GPU_RESET,
    MACHINE as MACHINE,
    MACHINE_VERSIONS as MACHINE_VERSIONS,
    MANAGED_BY as MANAGED_BY,
    NODE_CLAIM as NODE_CLAIM,
    POLICY_KINDS as POLICY_KINDS,
    PREFLIGHT_REPORT as PREFLIGHT_REPORT,
    REBOOT_NODE as REBOOT_NODE,
    RESOURCE_SLICES as RESOURCE_SLICES,
    CustomKind as CustomKind,
    CustomObject as CustomObject,
    StatedCondition as StatedCondition,
)
from kcover_portal.kube.values.events import (
    COMPONENT as COMPONENT,
    EventDraft as EventDraft,
    EventEvent as EventEvent,
    EventList as EventList,
    SeenEvent as SeenEvent,
)
from kcover_portal.kube.values.jobs import (
    ClaimSpec as ClaimSpec,
    ClaimState as ClaimState,
    JobSpec as JobSpec,
    JobState as JobState,
)
from kcover_portal.kube.values.leases import (
    LeaseClaim as LeaseClaim,
    LeaseDraft as LeaseDraft,
    LeaseHolder as LeaseHolder,
)
from kcover_portal.kube.values.nodes import (
    DesiredChange as DesiredChange,
    Node as Node,
    NodeChange as NodeChange,
    NodeEvent as NodeEvent,
    NodeList as NodeList,
    Taint as Taint,
)
from kcover_portal.kube.values.pods import (
    Blocked as Blocked,
    Budget as Budget,
    ContainerFailure as ContainerFailure,
    Evicted as Evicted,
    Eviction as Eviction,
    Gone as Gone,
    Pod as Pod,
    PodEvent as PodEvent,
    Requirement as Requirement,
)
from kcover_portal.kube.values.tokens import TokenIdentity as TokenIdentity
from kcover_portal.kube.values.workloads import (
    JOB_LABELS as JOB_LABELS,
    KUBEFLOW_JOB_LABEL as KUBEFLOW_JOB_LABEL,
    KUEUE_POD_GROUP_LABEL as KUEUE_POD_GROUP_LABEL,
    KUEUE_TAS_LABEL as KUEUE_TAS_LABEL,
    PROTECTED_LABEL as PROTECTED_LABEL,
    WORKLOADS as WORKLOADS,
    JobMethod as JobMethod,
    Phase as Phase,
    Workload as Workload,
    WorkloadKind as WorkloadKind,
)

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
