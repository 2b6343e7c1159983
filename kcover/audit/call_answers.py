"""The values in the entries of a call: the answer of the other side."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from kcover import reasons
from kcover.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvicted:
    """The pod is being deleted; its grace period is still running."""

    CODE: ClassVar[str] = "evicted"

    def sentence(self) -> Reason | None:
        """The answer in words."""
        return reasons.of("pod_evicted")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGone:
    """The pod did not exist any more."""

    CODE: ClassVar[str] = "gone"

    def sentence(self) -> Reason | None:
        """The answer in words."""
        return reasons.of("pod_gone")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionBlocked:
    """Disruption budgets refused the eviction. ``detail``: the API server's message."""

    CODE: ClassVar[str] = "blocked"
    budgets: tuple[str, ...] = ()
    detail: str = ""

    def sentence(self) -> Reason | None:
        """The answer in words."""
        return reasons.of("eviction_blocked")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """The parts of a node that the portal may change.

    ``state``: the value of its state label; ``labels``: the exclusion's and the others that its marks name, as
    ``key=value``.
    """

    unschedulable: bool
    taints: tuple[str, ...] = ()
    state: str | None = None
    labels: tuple[str, ...] = ()
    boot_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePatched:
    """The node before and after the patch; equal if nothing had to be written."""

    CODE: ClassVar[str] = "patched"
    before: NodeShape
    after: NodeShape

    def sentence(self) -> Reason | None:
        """None: readers show what differs."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsPatched:
    """Labels of a node before and after a patch; None for a label that it does not have."""

    CODE: ClassVar[str] = "labels_patched"
    before: Mapping[str, str | None] = field(default_factory=dict)
    after: Mapping[str, str | None] = field(default_factory=dict)

    def sentence(self) -> Reason | None:
        """None: readers show what differs."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The other side accepted the request. ``because`` names it: an agent's command, or a job."""

    CODE: ClassVar[str] = "accepted"
    because: Reason

    def sentence(self) -> Reason | None:
        """The answer in words."""
        return self.because


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRemoved:
    """The job "namespace/name" was deleted. ``had_run``: it had succeeded before."""

    CODE: ClassVar[str] = "job_removed"
    job: str
    had_run: bool

    def sentence(self) -> Reason | None:
        """The answer in words."""
        return reasons.of("job_had_run" if self.had_run else "job_deleted", job=self.job)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookAnswer:
    """The other system's answer; ``taken`` False: the request was refused, or its result is unclear."""

    CODE: ClassVar[str] = "webhook_answer"
    taken: bool
    because: Reason

    def sentence(self) -> Reason | None:
        """The answer in words."""
        return self.because


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerAnswer:
    """The answer of a machine's controller. Not ``taken``: refused; ``unclear``: it may have had its effect."""

    CODE: ClassVar[str] = "power_answer"
    taken: bool
    unclear: bool = False
    because: Reason

    def sentence(self) -> Reason | None:
        """The answer in words."""
        return self.because


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMade:
    """The claim of storage exists, in this phase."""

    CODE: ClassVar[str] = "claim_made"
    claim: str
    phase: str

    def sentence(self) -> Reason | None:
        """None: the claim's name and phase say it."""
        return None


Answer = (
    PodEvicted
    | PodGone
    | EvictionBlocked
    | NodePatched
    | LabelsPatched
    | Accepted
    | JobRemoved
    | WebhookAnswer
    | PowerAnswer
    | ClaimMade
)
