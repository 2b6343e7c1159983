"""Pods, disruption budgets, and the results of an eviction."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFailure:
    """A container (not an init container) that has terminated with reason ``Error``, as kcover looks for."""

    name: str
    message: str
    exit_code: int
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod. ``controller``: a controller owns it (``owner_*`` say which), else it is bare.

    ``mirror``: a static pod's shadow. ``terminal``: phase Succeeded or Failed. ``deleting``: a deletionTimestamp is
    set. ``job``: the training job it belongs to by label (Kubeflow's, batch's or LeaderWorkerSet's), "" if none.
    ``gpus`` is what its containers ask for.
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
    controller: bool = False
    mirror: bool = False
    daemonset: bool = False
    deleting: bool = False
    terminal: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    job: str = ""
    restart_policy: str = "Always"
    failures: tuple[ContainerFailure, ...] = ()
    resource_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """As ``NodeEvent``, about a pod."""

    kind: str
    pod: Pod | None
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One ``matchExpressions`` entry: operator is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy it (NotIn is also true for a missing key, as in the API server)."""
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
    """A PodDisruptionBudget; ``selects_nothing`` when its selector is one that matches no pod at all."""

    namespace: str
    name: str
    match_labels: Mapping[str, str] = field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()
    selects_nothing: bool = False
    disruptions_allowed: int = 0

    def covers(self, pod: Pod) -> bool:
        """Whether the budget protects this pod."""
        return (
            not self.selects_nothing
            and pod.namespace == self.namespace
            and all(pod.labels.get(key) == value for key, value in self.match_labels.items())
            and all(requirement.matches(pod.labels) for requirement in self.match_expressions)
        )


@dataclass(frozen=True, slots=True)
class Evicted:
    """The API server took it: the pod is on its way out, with its grace period still running."""


@dataclass(frozen=True, slots=True)
class Gone:
    """That very pod (by uid) is not there any more; one of the same name may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A disruption budget refused. ``budgets`` are its names, ``retry_after`` the server's seconds, if it named any."""

    reason: str
    budgets: tuple[str, ...] = ()
    retry_after: float | None = None


Eviction = Evicted | Gone | Blocked
