"""Pods, disruption budgets, and the results of an eviction."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFailure:
    """A container (not an init container) that terminated with reason ``Error``.

    ``finished_at``: by its kubelet. If that is missing: when the next container began, or when the pod stopped being
    ready; None if nothing says it.
    """

    name: str
    message: str
    exit_code: int
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod. ``controller``: it is owned by a controller (see ``owner_*``); otherwise it is bare.

    ``mirror``: a static pod's shadow. ``terminal``: phase Succeeded or Failed. ``deleting``: a deletionTimestamp is
    set. ``job``: the training job it belongs to by label (``JOB_LABELS``), "" if none. ``unschedulable``: the scheduler
    found no node for it. ``gpus`` is what its containers ask for. ``containers``: their names, without init
    containers. ``past_failures``: those of containers that were started again. ``last_words``: the termination message
    of its first container, or why the kubelet ended the pod.
    """

    namespace: str
    name: str
    uid: str
    node: str = ""
    phase: str = "Pending"
    ready: bool = False
    owner_kind: str = ""
    owner_name: str = ""
    owner_api: str = ""
    owner_uid: str = ""
    controller: bool = False
    mirror: bool = False
    daemonset: bool = False
    deleting: bool = False
    terminal: bool = False
    unschedulable: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    containers: tuple[str, ...] = ()
    job: str = ""
    restart_policy: str = "Always"
    failures: tuple[ContainerFailure, ...] = ()
    past_failures: tuple[ContainerFailure, ...] = ()
    last_words: str = ""
    resource_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """Like ``NodeEvent``, for a pod."""

    kind: str
    pod: Pod | None
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One ``matchExpressions`` entry; the operator is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Returns whether the labels match. As in the API server, NotIn also matches a missing key."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A PodDisruptionBudget. ``selects_nothing``: its selector matches no pod at all."""

    namespace: str
    name: str
    match_labels: Mapping[str, str] = field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()
    selects_nothing: bool = False
    disruptions_allowed: int = 0

    def covers(self, pod: Pod) -> bool:
        """Returns whether the budget protects this pod."""
        return (
            not self.selects_nothing
            and pod.namespace == self.namespace
            and all(pod.labels.get(key) == value for key, value in self.match_labels.items())
            and all(requirement.matches(pod.labels) for requirement in self.match_expressions)
        )


@dataclass(frozen=True, slots=True)
class Evicted:
    """The API server accepted the eviction. The pod is terminating; its grace period is still running."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The pod with this uid no longer exists. Another pod of the same name may exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A disruption budget prevented the eviction. ``retry_after`` is in seconds, if the server sent it."""

    reason: str
    budgets: tuple[str, ...] = ()
    retry_after: float | None = None


Eviction = Evicted | Gone | Blocked
