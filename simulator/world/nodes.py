"""The plan of the fleet: nodes, their names and labels, and their Node objects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

GPU = "nvidia.com/gpu"
RACK_SIZE = 16  # nodes behind one switch
ZONE_SIZE = 64
_STANDBY_EVERY = 25  # one spare for so many nodes of a pool, in pools of four or more


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """A kind of GPU nodes. ``share``: its part of the fleet. ``product``: the label of the GPU feature discovery."""

    name: str
    share: float
    product: str
    model: str
    instance: str
    labels: Mapping[str, str]


POOLS = (
    NodePool(
        name="h100-a",
        share=0.40,
        product="NVIDIA-H100-80GB-HBM3",
        model="NVIDIA H100 80GB HBM3",
        instance="h100.8x",
        labels={"app": "training", "env": "prod"},
    ),
    NodePool(
        name="h100-b",
        share=0.25,
        product="NVIDIA-H100-80GB-HBM3",
        model="NVIDIA H100 80GB HBM3",
        instance="h100.8x",
        labels={"app": "training", "env": "prod"},
    ),
    NodePool(
        name="a100",
        share=0.20,
        product="NVIDIA-A100-SXM4-80GB",
        model="NVIDIA A100-SXM4-80GB",
        instance="a100.8x",
        labels={"app": "demo", "env": "test"},
    ),
    NodePool(
        name="inference",
        share=0.15,
        product="NVIDIA-L40S",
        model="NVIDIA L40S",
        instance="l40s.8x",
        labels={"app": "serving", "env": "prod"},
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """The plan of one node. ``model`` is empty for a node without GPUs."""

    name: str
    pool: str
    gpus: int
    model: str = ""
    standby: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


def plan(*, nodes: int, gpus: int, cpu_nodes: int | None = None) -> list[NodeSpec]:
    """``nodes`` GPU nodes in pools, racks and zones, the last ones of each pool as spares, and some nodes without GPUs.

    ``cpu_nodes`` None means one in 25, at least one and at most 40.
    """
    specs: list[NodeSpec] = []
    for pool, size in zip(POOLS, _sizes(nodes), strict=True):
        first = len(specs)
        spares = 0 if size < 4 else max(1, size // _STANDBY_EVERY)
        for at in range(size):
            number = first + at
            specs.append(_gpu_node(pool, number, gpus=gpus, standby=at >= size - spares))
    if cpu_nodes is None:
        cpu_nodes = min(max(1, nodes // 25), 40)
    for number in range(cpu_nodes):
        name = f"cpu-{number + 1:02d}"
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "cpu.64c",
            "node-role.kubernetes.io/control-plane" if number == 0 else "node-role.kubernetes.io/worker": "",
            "topology.kubernetes.io/zone": "zone-a",
            "pool": "cpu",
        }
        specs.append(NodeSpec(name=name, pool="cpu", gpus=0, labels=labels))
    return specs


def _sizes(nodes: int) -> list[int]:
    """The sizes of the pools: the shares rounded down; the first pool gets the remainder."""
    sizes = [int(nodes * pool.share) for pool in POOLS]
    sizes[0] += nodes - sum(sizes)
    return sizes


def _gpu_node(pool: NodePool, number: int, *, gpus: int, standby: bool) -> NodeSpec:
    name = f"gpu-{number + 1:04d}"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": pool.instance,
        "node-role.kubernetes.io/gpu": "",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": pool.product,
        "nvidia.com/gpu.count": str(gpus),
        "topology.kubernetes.io/zone": f"zone-{chr(ord('a') + number // ZONE_SIZE % 26)}",
        "topology.kubernetes.io/rack": f"rack-{number // RACK_SIZE + 1:02d}",
        "pool": pool.name,
        **pool.labels,
    }
    if standby:
        labels |= {"kcover.io/standby": "true", "node-restriction.kubernetes.io/standby": "true"}
    return NodeSpec(name=name, pool=pool.name, gpus=gpus, model=pool.model, standby=standby, labels=labels)


def render(spec: NodeSpec, *, number: int, boot_id: str, at: str, images: list[Object]) -> Object:
    """The Node object of a machine that is up. ``at``: the time of its conditions. Spares are cordoned.

    ``images`` is shared by all nodes; it makes up most of a real Node object's size.
    """
    address = f"10.{16 + number // 65536}.{number // 256 % 256}.{number % 256}"
    capacity = {"cpu": "128", "memory": "2113411308Ki", "pods": "110", "ephemeral-storage": "3748905484Ki"}
    if spec.gpus:
        capacity |= {GPU: str(spec.gpus)}
    node: Object = {
        "metadata": {
            "name": spec.name,
            "labels": dict(spec.labels),
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {
            "podCIDR": f"10.{128 + number // 256 % 128}.{number % 256}.0/24",
            "providerID": f"simulator://{spec.name}",
        },
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": spec.name},
            ],
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [
                *(pressure(kind, at) for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")),
                ready("True", at),
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": images,
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": boot_id,
                "containerRuntimeVersion": "containerd://1.7.27",
                "kernelVersion": "6.8.0-85-generic",
                "kubeProxyVersion": "v1.32.4",
                "kubeletVersion": "v1.32.4",
                "machineID": f"{number:032x}",
                "operatingSystem": "linux",
                "osImage": "Ubuntu 24.04.3 LTS",
                "systemUUID": system_uuid(number),
            },
        },
    }
    if spec.standby:
        node["spec"] |= {"unschedulable": True, "taints": [unschedulable_taint(at)]}
    return node


def system_uuid(number: int) -> str:
    """The SMBIOS UUID of the ``number``-th machine, as its kubelet and its controller report it."""
    return f"00000000-0000-4000-8000-{number:012x}"


def serial_number(number: int) -> str:
    """The serial number of a machine, as its firmware and its controller report it."""
    return f"SN{system_uuid(number)[-8:]}"


def images(*, node_bytes: int) -> list[Object]:
    """An image list that makes a Node object about ``node_bytes`` long; real ones have 10 to 20 KB."""
    found = []
    room = node_bytes - 2600  # size of the rest of the object
    number = 0
    while room > 0:
        entry = {
            "names": [
                f"registry.example/ml/image-{number:04d}@sha256:{number:064x}",
                f"registry.example/ml/{number:04d}",
            ],
            "sizeBytes": 4_000_000_000 + number,
        }
        room -= 180
        number += 1
        found.append(entry)
    return found


def ready(status: str, at: str) -> Object:
    """A node's Ready condition: ``True``, ``False`` (the kubelet reports it) or ``Unknown`` (the kubelet is silent)."""
    reason, message = {
        "True": ("KubeletReady", "kubelet is posting ready status"),
        "False": ("KubeletNotReady", "container runtime status check may not have completed yet"),
        "Unknown": ("NodeStatusUnknown", "Kubelet stopped posting node status."),
    }[status]
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }


def with_ready(node: Object, status: str, at: str) -> Object:
    """The node with its Ready condition set; ``lastTransitionTime`` only moves when the status changes."""
    condition = ready(status, at)
    others = []
    for entry in node["status"].get("conditions") or ():
        if entry["type"] != "Ready":
            others.append(entry)
        elif entry["status"] == status:
            condition["lastTransitionTime"] = entry["lastTransitionTime"]
    return {**node, "status": {**node["status"], "conditions": [*others, condition]}}


def ready_status(node: Object) -> str:
    """The status of the Ready condition: ``True``, ``False`` or ``Unknown``."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((str(entry["status"]) for entry in conditions if entry["type"] == "Ready"), "Unknown")


def pressure(kind: str, at: str) -> Object:
    """A node condition whose healthy status is False."""
    name = kind.removesuffix("Pressure")
    return {
        "type": kind,
        "status": "False",
        "reason": f"KubeletHasSufficient{name}",
        "message": f"kubelet has sufficient {name.lower()} available",
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }


def unschedulable_taint(at: str) -> Object:
    """The taint that the node lifecycle controller puts on a cordoned node."""
    return {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": at}
