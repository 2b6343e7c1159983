"""Nodes, the wanted changes to them, and what lists and watches return."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint. API servers tell taints apart by key and effect; it is the portal's if the value is its too."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as far as the portal cares.

    ``annotations`` holds only those under kcover.io/ and autopilot.ibm.com/; ``conditions`` maps type to status
    ("True", "False", "Unknown"); ``ready_since`` is when Ready last turned True, None while it is not; ``gpus`` is the
    capacity over NVIDIA's, AMD's and MetaX's resources.
    """

    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    ready_since: datetime | None = None
    boot_id: str = ""
    gpus: int = 0
    kubelet: str = ""
    internal_ip: str = ""
    resource_version: str = ""
    conditions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """The wanted end of a node; what is not named stays. A label or annotation of None is removed.

    ``add_taints`` sets the value of a taint with the same key and effect, if there is one. ``remove_taints`` removes
    only what equals in key, value and effect: another value is somebody else's taint.
    """

    cordon: bool | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    add_taints: tuple[Taint, ...] = ()
    remove_taints: tuple[Taint, ...] = ()


Wanted = Callable[[Node], NodeChange]  # the wanted end, as a function of the node as it was read


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeList:
    """Every node at one moment; a watch goes on from ``resource_version``."""

    items: tuple[Node, ...]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """What a watch says. ``kind``: ADDED, MODIFIED, DELETED, or BOOKMARK (no node, only how far the watch has come)."""

    kind: str
    node: Node | None
    resource_version: str
