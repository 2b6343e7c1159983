"""Nodes."""

from typing import Any, Final

import msgspec

from kcover.sources.conditions import Condition
from kcover.values import moments
from kcover_portal.kube import values
from kcover_portal.kube.wire import base

ANNOTATION_PREFIXES: Final = ("kcover.io/", "autopilot.ibm.com/")
MAX_ADDRESSES: Final = 16


class NodeSpec(base.Struct, frozen=True):
    """Taints are kept as whole mappings, so that a patch preserves fields that are unknown here."""

    unschedulable: bool = False
    taints: list[dict[str, Any]] | None = None
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeInfo(base.Struct, frozen=True):
    """NodeSystemInfo."""

    boot_id: str = msgspec.field(name="bootID", default="")
    kubelet_version: str = ""
    container_runtime_version: str = ""
    system_uuid: str = msgspec.field(name="systemUUID", default="")


class Address(base.Struct, frozen=True):
    type: str
    address: str


class NodeStatus(base.Struct, frozen=True):
    capacity: dict[str, str | int] | None = None
    allocatable: dict[str, str | int] | None = None
    conditions: list[base.Condition] | None = None
    addresses: list[Address] | None = None
    node_info: NodeInfo | None = None


class NodeObject(base.AnyObject, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def value(self) -> values.Node:
        meta, status = self.metadata, self.status
        conditions = status.conditions or []
        ready = next((c for c in conditions if c.type == "Ready"), None)
        is_ready = ready is not None and ready.status == "True"
        info = status.node_info or NodeInfo()
        return values.Node(
            name=meta.name,
            uid=meta.uid,
            created_at=moments.bounded_or_none(meta.creation_timestamp),
            labels=meta.labels or {},
            annotations={k: v for k, v in (meta.annotations or {}).items() if k.startswith(ANNOTATION_PREFIXES)},
            taints=tuple(
                values.Taint(t.get("key", ""), t.get("value", ""), t.get("effect", "")) for t in self.spec.taints or ()
            ),
            unschedulable=self.spec.unschedulable,
            ready=is_ready,
            ready_since=moments.bounded_or_none(ready.last_transition_time) if ready is not None and is_ready else None,
            boot_id=info.boot_id,
            gpus=base.gpus(status.capacity),
            unallocatable=base.gpus_missing(status.capacity, status.allocatable),
            runtime=info.container_runtime_version.partition(":")[0],
            kubelet=info.kubelet_version,
            system_uuid=info.system_uuid,
            provider_id=self.spec.provider_id,
            internal_ip=next((a.address for a in status.addresses or () if a.type == "InternalIP"), ""),
            addresses=tuple(dict.fromkeys(a.address for a in status.addresses or () if a.address))[:MAX_ADDRESSES],
            resource_version=meta.resource_version,
            conditions={c.type: c.status for c in conditions},
            stated=tuple(_condition(c) for c in conditions),
        )


def _condition(stated: base.Condition) -> Condition:
    return Condition(
        type=stated.type,
        status=stated.status,
        reason=stated.reason,
        message=stated.message,
        since=moments.bounded_or_none(stated.last_transition_time),
        heartbeat=moments.bounded_or_none(stated.last_heartbeat_time),
    )
