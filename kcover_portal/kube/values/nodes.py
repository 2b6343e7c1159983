"""Nodes, changes to them, and the results of lists and watches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kcover.sources.conditions import Condition


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint. API servers identify a taint by key and effect; the value shows whether it is the portal's."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The fields of a node that the portal uses.

    ``annotations`` holds only those under kcover.io/ and autopilot.ibm.com/; ``conditions`` maps type to status
    ("True", "False", "Unknown"), ``stated`` has them with reason, message and time; ``ready_since`` is when Ready last
    turned True, None while it is not; ``system_uuid`` is the machine's SMBIOS UUID, ``provider_id`` its name in a
    cloud; ``gpus`` is the capacity over NVIDIA's, AMD's and MetaX's resources, and ``unallocatable`` how many of them
    pods cannot get. ``runtime``: the container runtime (``containerd``). ``addresses``: all that its status has.
    ``created_at``: when it joined, by the API server.
    """

    name: str
    uid: str
    created_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    ready_since: datetime | None = None
    boot_id: str = ""
    gpus: int = 0
    unallocatable: int = 0
    runtime: str = ""
    kubelet: str = ""
    internal_ip: str = ""
    addresses: tuple[str, ...] = ()
    system_uuid: str = ""
    provider_id: str = ""
    resource_version: str = ""
    conditions: Mapping[str, str] = field(default_factory=dict)
    stated: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """The wanted state of a node. Anything not named stays unchanged; a label or annotation of None is removed.

    ``add_taints`` replaces the value of an existing taint with the same key and effect. ``remove_taints`` removes only
    taints that are equal in key, value and effect, because another value marks another owner's taint.
    """

    cordon: bool | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    add_taints: tuple[Taint, ...] = ()
    remove_taints: tuple[Taint, ...] = ()


DesiredChange = Callable[[Node], NodeChange]  # the wanted state as a function of the node as read


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeList:
    """All nodes at one time; a watch continues from ``resource_version``."""

    items: tuple[Node, ...]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """An event of a watch. ``kind``: ADDED, MODIFIED, DELETED, or BOOKMARK (only a resource version, no node)."""

    kind: str
    node: Node | None
    resource_version: str
