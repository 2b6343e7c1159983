"""The values in the entries of a call: its goal."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from kcover.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePatch:
    """A change of a node. ``label``: "key=value", or "key-" if it is removed; ``taint``: "key=value:effect"."""

    CODE: ClassVar[str] = "node_patch"
    state: str | None = None
    cordon: bool = False
    label: str = ""
    taint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRemoval:
    """The eviction or deletion of one pod.

    ``job``: the training job that is restarted; ``forced``: without a grace period.
    """

    CODE: ClassVar[str] = "pod_removal"
    uid: str
    job: str = ""
    forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCommand:
    """An order to the controller of a training job.

    ``action``: Volcano's command, "suspend", or "exclude" with the hosts.
    """

    CODE: ClassVar[str] = "job_command"
    kind: str
    uid: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RebootRequest:
    """The reboot that ends the boot ``boot_id``, requested through ``driver``."""

    CODE: ClassVar[str] = "reboot"
    driver: str
    boot_id: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerChange:
    """The machine's power is changed by the controller ``machine``, to end the boot ``boot_id``.

    ``power``: "off", "on" or "cycle".
    """

    CODE: ClassVar[str] = "power"
    driver: str
    machine: str
    power: str
    boot_id: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReset:
    """The reset of one GPU, named by its UUID or its PCI address."""

    CODE: ClassVar[str] = "gpu_reset"
    driver: str
    key: str
    gpu_uuid: str = ""
    pci: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """Checks that the node's agent must run."""

    CODE: ClassVar[str] = "checks"
    key: str
    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRequest:
    """A validation of the node with this profile."""

    CODE: ClassVar[str] = "validation"
    key: str
    profile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOrder:
    """A repair of the node. ``vendor`` and ``queue``: "" leaves them to people."""

    CODE: ClassVar[str] = "repair"
    vendor: str = ""
    queue: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The deletion of the object with this uid, which stands for the machine ``provider_id``: its owner makes another.

    ``machine``: the object as "namespace/name", or its name.
    """

    CODE: ClassVar[str] = "replacement"
    driver: str
    kind: str
    machine: str
    uid: str
    provider_id: str
    system_uuid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTaint:
    """A DeviceTaintRule that taints one device. ``taint``: "key=value:effect"; "" when the rule is deleted.

    ``uid``: of the rule, when it is deleted.
    """

    CODE: ClassVar[str] = "device_taint"
    rule: str
    driver: str = ""
    pool: str = ""
    device: str = ""
    taint: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery:
    """A signed POST to another system."""

    CODE: ClassVar[str] = "webhook"
    delivery: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyChange:
    """A standby is reserved, activated for ``origin``, or given back."""

    CODE: ClassVar[str] = "standby"
    assignment: int
    origin: str = ""
    because: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbationChange:
    """A probation begins and lasts ``until`` this time, or (None) it ends. ``because``: the basis of its length, or
    the reason why it ends.
    """

    CODE: ClassVar[str] = "probation"
    probation: int
    because: Reason
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLabel:
    """The value of Autopilot's health label; None: the portal sets no label."""

    CODE: ClassVar[str] = "health_label"
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClaim:
    """A claim of storage. ``storage_class`` "": the cluster's default."""

    CODE: ClassVar[str] = "storage_claim"
    namespace: str
    claim: str
    storage_class: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTestJobs:
    """The Jobs of one pair test, one on each node, each with ``gpus`` GPUs."""

    CODE: ClassVar[str] = "pair_test_jobs"
    namespace: str
    jobs: tuple[str, ...]
    image: str
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTestCleanup:
    """The Jobs of pair tests that have ended are deleted."""

    CODE: ClassVar[str] = "pair_test_cleanup"
    namespace: str
    jobs: tuple[str, ...]


Wanted = (
    NodePatch
    | PodRemoval
    | JobCommand
    | RebootRequest
    | PowerChange
    | GpuReset
    | CheckRequest
    | ValidationRequest
    | RepairOrder
    | Replacement
    | DeviceTaint
    | WebhookDelivery
    | StandbyChange
    | ProbationChange
    | HealthLabel
    | StorageClaim
    | PairTestJobs
    | PairTestCleanup
)
