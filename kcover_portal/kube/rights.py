"""The rights that the portal uses in a cluster, by feature. ``tests/contract/test_features.py`` compares the chart."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kcover_portal.kube.values import Right

JOBS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "kubeflow": tuple(
        ("kubeflow.org", kind) for kind in ("pytorchjobs", "tfjobs", "mpijobs", "mxjobs", "xgboostjobs", "paddlejobs")
    ),
    "batch": (("batch", "jobs"),),
    "leaderWorkerSet": (("leaderworkerset.x-k8s.io", "leaderworkersets"),),
    "jobSet": (("jobset.x-k8s.io", "jobsets"),),
    "trainer": (("trainer.kubeflow.org", "trainjobs"),),
    "ray": (("ray.io", "rayclusters"), ("ray.io", "rayjobs")),
    "volcano": (("batch.volcano.sh", "jobs"),),
    "statefulSet": (("apps", "statefulsets"),),
}
_JOB_KINDS: Final = frozenset(kind for kinds in JOBS.values() for kind in kinds)
LEASE_NAMESPACE: Final = "kcover-lease"  # of the election between portals; only watch uses it
_POLICIES: Final = ("rescuepolicies", "warmstandbypolicies")


class Need(StrEnum):
    """The importance of a feature: required, on by default in the chart, or off by default."""

    REQUIRED = "required"
    DEFAULT = "default"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that the portal does in a cluster. ``name``: as in the chart's ``features``, if it is one of those.

    ``manifest``: the file in the repository that grants its rights to the account of a kubeconfig.
    """

    name: str
    rights: tuple[Right, ...]
    need: Need = Need.DEFAULT
    manifest: str = "deploy/rbac.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespaces:
    """Where the portal creates objects in a cluster. ``pod_logs``: where it reads logs of pods; empty: not known."""

    jobs: str = "kcover-jobs"
    preflight: str = "kcover-preflight"
    events: str = "kce-rescue-system"
    pod_logs: tuple[str, ...] = ()


def features(place: Namespaces) -> tuple[Feature, ...]:
    """Returns every feature with its rights."""
    core, machines = "", (Need.OPTIONAL, "deploy/machines.yaml")
    janitor, budgets = "janitor.dgxc.nvidia.com", Right("list", "policy", "poddisruptionbudgets")
    return (
        Feature("watch", (*_each("get list watch", core, "nodes"), *_each("list watch", core, "pods")), Need.REQUIRED),
        Feature("mark", _each("patch", core, "nodes")),
        Feature("evict", (*_each("create", core, "pods/eviction"), *_each("get", core, "pods"), budgets)),
        Feature("delete", _each("delete", core, "pods")),
        Feature("rebootJob", _each("create get delete", "batch", "jobs", place.jobs)),
        Feature("readEvents", _each("list watch", core, "events")),
        Feature(
            "writeEvents", (*_each("create", core, "events", place.events), *_each("create", core, "events", "default"))
        ),
        Feature("agentTokens", _each("create", "authentication.k8s.io", "tokenreviews")),
        *(_jobs(name) for name in JOBS),
        Feature("pairTests", _each("create get delete", "batch", "jobs", place.preflight)),
        Feature("claimCheck", _each("create get delete", core, "persistentvolumeclaims", place.jobs)),
        Feature("preflightReports", _each("list", "kcover.io", "preflightreports")),
        Feature("policyObjects", tuple(_policy_objects())),
        Feature("ledgerLease", _each("create get patch", "coordination.k8s.io", "leases", place.jobs)),
        Feature(
            "podLogs",
            tuple(Right("get", core, "pods/log", namespace) for namespace in place.pod_logs or ("",)),
            Need.OPTIONAL,
            "deploy/pod-logs.yaml",
        ),
        Feature(
            "nvsentinel",
            (*_each("create get list", janitor, "rebootnodes"), *_each("create get list", janitor, "gpuresets")),
            *machines,
        ),
        Feature("clusterApi", _each("list delete", "cluster.x-k8s.io", "machines"), *machines),
        Feature("karpenter", _each("list delete", "karpenter.sh", "nodeclaims"), *machines),
        Feature(
            "deviceTaints",
            (
                *_each("list", "resource.k8s.io", "resourceslices"),
                *_each("create get list delete", "resource.k8s.io", "devicetaintrules"),
            ),
            *machines,
        ),
        Feature(
            "actionLease",
            _each("create get patch", "coordination.k8s.io", "leases", LEASE_NAMESPACE),
            Need.OPTIONAL,
            "deploy/action-lease.yaml",
        ),
    )


def _each(verbs: str, group: str, resource: str, namespace: str = "") -> tuple[Right, ...]:
    return tuple(Right(verb, group, resource, namespace) for verb in verbs.split())


def _jobs(name: str) -> Feature:
    verbs = "get list" if name == "statefulSet" else "get list patch"
    found = [right for group, resource in JOBS[name] for right in _each(verbs, group, resource)]
    if name == "volcano":
        found.append(Right("create", "bus.volcano.sh", "commands"))
    return Feature(name, tuple(found))


def _policy_objects() -> Iterator[Right]:
    for group in ("kcover.io", "rescue.ksyun.com"):
        for resource in _POLICIES:
            yield Right("list", group, resource)
            yield Right("patch", group, f"{resource}/status")


def _reads_jobs(right: Right) -> bool:
    return (right.group, right.resource) in _JOB_KINDS and not right.namespace and right.verb in ("get", "list")


def _is_of_web(right: Right) -> bool:
    kept = {("list", "pods"), ("list", "poddisruptionbudgets"), ("get", "pods/log")}
    kept |= {("delete", "persistentvolumeclaims")}
    return _reads_jobs(right) or (right.verb, right.resource) in kept


def _is_of_live(right: Right) -> bool:
    return right.resource == "tokenreviews" or (right.verb, right.resource) == ("list", "pods")


def _is_of_watch(right: Right) -> bool:
    reads = right.verb in ("list", "watch") and right.resource in ("nodes", "pods", "events")
    reads_node = (right.verb, right.resource) == ("get", "nodes")
    return reads or reads_node or _reads_jobs(right) or right.namespace == LEASE_NAMESPACE


def _is_of_worker(right: Right) -> bool:
    others = right.verb == "watch" or (right.verb, right.resource) in {("list", "nodes"), ("list", "events")}
    return not others and right.resource != "tokenreviews" and right.namespace != LEASE_NAMESPACE


# In a cluster that the portal runs in, each process has an account of its own.
PROCESSES: Final[Mapping[str, Callable[[Right], bool]]] = {
    "web": _is_of_web,
    "live": _is_of_live,
    "watch": _is_of_watch,
    "worker": _is_of_worker,
}


def of_process(process: str, found: Iterable[Feature]) -> tuple[Feature, ...]:
    """Returns the features with only the rights that this process uses; those without any are left out."""
    mine = PROCESSES[process]
    kept = ((one, tuple(filter(mine, one.rights))) for one in found)
    return tuple(Feature(one.name, rights, one.need, one.manifest) for one, rights in kept if rights)
