"""The portal's own Jobs and PersistentVolumeClaims."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A Job that runs once on one node. It bypasses the scheduler, so that it also runs on a cordoned node.

    ``resources``: what the container asks the node for, such as ``nvidia.com/gpu``; a kubelet whose node has some
    refuses the pod if not as much is left. ``host_network``: the pod has the node's address. ``unless_labelled``: the
    kubelet of a node with one of these labels refuses the pod.
    """

    name: str
    namespace: str
    node: str
    image: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    host_pid: bool = False
    host_network: bool = False
    resources: Mapping[str, int] = field(default_factory=dict)
    unless_labelled: tuple[str, ...] = ()
    privileged: bool = False
    deadline_seconds: int = 600
    service_account: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The state of a Job. ``reason`` is that of its Failed condition, such as DeadlineExceeded.

    ``labels``: its own, by which its creator is known. ``node``, ``env``: of its pod and of the pod's container.
    """

    exists: bool
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    reason: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    node: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


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
