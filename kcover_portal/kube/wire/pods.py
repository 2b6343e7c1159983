"""Pods and the budgets that protect them."""

import sys
from datetime import datetime
from typing import Final

from kcover.values import moments
from kcover_portal.kube import values
from kcover_portal.kube.wire import base

MIRROR: Final = "kubernetes.io/config.mirror"


class Resources(base.Struct, frozen=True):
    """A container's ResourceRequirements."""

    limits: dict[str, str | int] | None = None


class Container(base.Struct, frozen=True):
    name: str = ""
    resources: Resources | None = None


class Terminated(base.Struct, frozen=True):
    """ContainerStateTerminated."""

    reason: str = ""
    message: str = ""
    exit_code: int = 0
    finished_at: datetime | None = None


class Running(base.Struct, frozen=True):
    """ContainerStateRunning."""

    started_at: datetime | None = None


class ContainerState(base.Struct, frozen=True):
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(base.Struct, frozen=True):
    name: str
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodSpec(base.Struct, frozen=True):
    node_name: str = ""
    restart_policy: str = "Always"
    containers: list[Container] | None = None


class PodStatus(base.Struct, frozen=True):
    phase: str = "Pending"
    message: str = ""
    conditions: list[base.Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None


class PodObject(base.AnyObject, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def value(self) -> values.Pod:
        meta, spec, status = self.metadata, self.spec, self.status
        labels = meta.labels or {}
        owner = next((ref for ref in meta.owner_references or () if ref.controller), None)
        return values.Pod(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            node=spec.node_name,
            phase=status.phase,
            ready=any(c.type == "Ready" and c.status == "True" for c in status.conditions or ()),
            owner_kind=owner.kind if owner else "",
            owner_name=owner.name if owner else "",
            owner_api=owner.api_version if owner else "",
            owner_uid=owner.uid if owner else "",
            controller=owner is not None,
            mirror=MIRROR in (meta.annotations or {}),
            daemonset=owner is not None and owner.kind == "DaemonSet",
            deleting=meta.deletion_timestamp is not None,
            terminal=status.phase in ("Succeeded", "Failed"),
            unschedulable=any(c.type == "PodScheduled" and c.status == "False" for c in status.conditions or ()),
            labels=labels,
            gpus=sum(base.gpus(c.resources.limits) for c in spec.containers or () if c.resources),
            containers=tuple(sys.intern(c.name) for c in spec.containers or ()),  # many pods have few names
            job=next((labels[key] for key in values.JOB_LABELS if labels.get(key)), ""),
            restart_policy=spec.restart_policy,
            failures=tuple(_failures(status)),
            last_words=_last_words(status),
            past_failures=tuple(_failures(status, past=True)),
            resource_version=meta.resource_version,
        )

    def has_failed(self) -> bool:
        """Returns whether a container failed, now or before its restart."""
        return bool(_failures(self.status) or _failures(self.status, past=True))


def _last_words(status: PodStatus) -> str:
    if status.phase not in ("Succeeded", "Failed"):
        return ""
    states = (container.state for container in status.container_statuses or ())
    messages = (state.terminated.message for state in states if state and state.terminated)
    return next(messages, "") or status.message


class SelectorRequirement(base.Struct, frozen=True):
    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(base.Struct, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement] | None = None


class BudgetSpec(base.Struct, frozen=True):
    selector: LabelSelector | None = None


class BudgetStatus(base.Struct, frozen=True):
    disruptions_allowed: int = 0


class BudgetObject(base.AnyObject, frozen=True):
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    def value(self, *, empty_selects_all: bool = True) -> values.Budget:
        """Returns the port's value. ``{}`` selects all pods in policy/v1 and none in v1beta1; null selects none."""
        selector = self.spec.selector or LabelSelector()
        nothing = not (selector.match_labels or selector.match_expressions or empty_selects_all)
        return values.Budget(
            namespace=self.metadata.namespace,
            name=self.metadata.name,
            match_labels=selector.match_labels or {},
            match_expressions=tuple(
                values.Requirement(key=r.key, operator=r.operator, values=tuple(r.values or ()))
                for r in selector.match_expressions or ()
            ),
            selects_nothing=self.spec.selector is None or nothing,
            disruptions_allowed=self.status.disruptions_allowed,
        )


# The second: the kubelet came back without the container, as after the end of its node. The third: containerd did.
FAILED: Final = ("Error", "ContainerStatusUnknown", "Unknown")
# What a pod shows since its containers ended, where the kubelet knows no time.
_ENDED: Final = (("ContainersReady", "False"), ("Ready", "False"), ("DisruptionTarget", "True"))


def _failures(status: PodStatus, *, past: bool = False) -> list[values.ContainerFailure]:
    found = []
    for one in status.container_statuses or ():
        state = one.last_state if past else one.state
        end = state.terminated if state else None
        if end is None or end.reason not in FAILED:
            continue
        at = moments.bounded_or_none(end.finished_at or (_started_again(one) if past else _not_ready_since(status)))
        failure = values.ContainerFailure(name=one.name, message=end.message, exit_code=end.exit_code, finished_at=at)
        found.append(failure)
    return found


def _started_again(one: ContainerStatus) -> datetime | None:
    """When the container that follows a failed one began."""
    return one.state.running.started_at if one.state and one.state.running else None


def _not_ready_since(status: PodStatus) -> datetime | None:
    """When the pod's containers stopped being ready. It stays the same until they are ready again."""
    times = {(c.type, c.status): c.last_transition_time for c in status.conditions or ()}
    return next((at for stated in _ENDED if (at := times.get(stated)) is not None), None)
