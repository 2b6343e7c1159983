"""Tables as ``kubectl get`` prints them: the columns of ``k8s.io/kubernetes/pkg/printers/internalversion``."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from simulator.kubeapi import resources, selectors

Object = dict[str, Any]

_NONE = "<none>"
_UNKNOWN = "<unknown>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``wide`` ones are shown by ``-o wide`` only. ``value`` makes a cell from an object and the time."""

    name: str
    value: Callable[[Object, datetime], str | int]
    wide: bool = False
    kind: str = "string"


def columns(resource: resources.Resource) -> list[Object]:
    """The ``columnDefinitions`` of a kind."""
    return [
        {
            "name": column.name,
            "type": column.kind,
            "format": "name" if column.name == "Name" else "",
            "description": column.name,
            "priority": int(column.wide),
        }
        for column in _of(resource)
    ]


def cells(resource: resources.Resource, obj: Object, *, now: datetime) -> list[str | int]:
    """One row."""
    return [column.value(obj, now) for column in _of(resource)]


def _of(resource: resources.Resource) -> tuple[Column, ...]:
    return _COLUMNS.get(resource.kind, _PLAIN) if resource.typed else _CUSTOM


def duration(span: timedelta) -> str:
    """A span as ``k8s.io/apimachinery/pkg/util/duration`` shortens it: ``45s``, ``5m10s``, ``2d4h``, ``12d``."""
    seconds = int(span.total_seconds())
    if seconds < 0:
        return "<invalid>" if seconds < -1 else "0s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _pair(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _pair(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _pair(whole: int, unit: str, part: int, part_unit: str) -> str:
    return f"{whole}{unit}{part}{part_unit}" if part else f"{whole}{unit}"


def since(moment: str | None, now: datetime) -> str:
    """How long ago an RFC 3339 time was."""
    return duration(now - datetime.fromisoformat(moment)) if moment else _UNKNOWN


def _at(path: str, missing: str = _NONE) -> Callable[[Object, datetime], str]:
    return lambda obj, now: selectors.value_at(obj, path) or missing


def _number(path: str, missing: int = 0) -> Callable[[Object, datetime], int]:
    return lambda obj, now: int(selectors.value_at(obj, path) or missing)


def _age(obj: Object, now: datetime) -> str:
    return since(obj["metadata"].get("creationTimestamp"), now)


_NAME = Column("Name", _at("metadata.name"))
_AGE = Column("Age", _age)
_PLAIN = (_NAME, Column("Created At", _at("metadata.creationTimestamp"), kind="date"))


def _state(obj: Object, now: datetime) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return conditions[-1]["type"] if conditions else ""


_CUSTOM = (_NAME, Column("State", _state), _AGE)


# Nodes


def _node_status(node: Object, now: datetime) -> str:
    ready = {"True": "Ready", "False": "NotReady"}
    found = [
        ready.get(condition["status"], "NotReady")
        for condition in (node.get("status") or {}).get("conditions") or ()
        if condition["type"] == "Ready"
    ] or ["Unknown"]
    return ",".join(found + (["SchedulingDisabled"] if (node.get("spec") or {}).get("unschedulable") else []))


def _roles(node: Object, now: datetime) -> str:
    roles = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        if key.startswith("node-role.kubernetes.io/"):
            roles.add(key.removeprefix("node-role.kubernetes.io/"))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles - {""})) or _NONE


def _address(kind: str) -> Callable[[Object, datetime], str]:
    def find(node: Object, now: datetime) -> str:
        addresses = (node.get("status") or {}).get("addresses") or ()
        return next((address["address"] for address in addresses if address["type"] == kind), _NONE)

    return find


_INFO = "status.nodeInfo."
_NODE = (
    _NAME,
    Column("Status", _node_status),
    Column("Roles", _roles),
    _AGE,
    Column("Version", _at(f"{_INFO}kubeletVersion", "")),
    Column("Internal-IP", _address("InternalIP"), wide=True),
    Column("External-IP", _address("ExternalIP"), wide=True),
    Column("OS-Image", _at(f"{_INFO}osImage", _UNKNOWN), wide=True),
    Column("Kernel-Version", _at(f"{_INFO}kernelVersion", _UNKNOWN), wide=True),
    Column("Container-Runtime", _at(f"{_INFO}containerRuntimeVersion", _UNKNOWN), wide=True),
)


# Pods


def _containers(pod: Object) -> list[Object]:
    return list((pod.get("status") or {}).get("containerStatuses") or ())


def _pod_ready(pod: Object, now: datetime) -> str:
    ready = sum(bool(status.get("ready")) for status in _containers(pod))
    return f"{ready}/{len((pod.get('spec') or {}).get('containers') or ())}"


def _pod_status(pod: Object, now: datetime) -> str:
    """The one word for a pod: its phase, unless a container or its deletion has more to say."""
    status = pod.get("status") or {}
    reason = status.get("reason") or status.get("phase") or "Unknown"
    running = False
    for container in reversed(_containers(pod)):
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated:
            reason = terminated.get("reason") or f"ExitCode:{terminated.get('exitCode', 0)}"
        elif container.get("ready"):
            running = True
    if reason == "Completed" and running:
        reason = "Running"
    if "deletionTimestamp" in pod["metadata"]:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(reason)


def _restarts(pod: Object, now: datetime) -> str:
    count, latest = 0, ""
    for container in _containers(pod):
        count += container.get("restartCount", 0)
        finished = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt", "")
        latest = max(latest, finished)
    return f"{count} ({since(latest, now)} ago)" if count and latest else str(count)


_POD = (
    _NAME,
    Column("Ready", _pod_ready),
    Column("Status", _pod_status),
    Column("Restarts", _restarts),
    _AGE,
    Column("IP", _at("status.podIP"), wide=True),
    Column("Node", _at("spec.nodeName"), wide=True),
    Column("Nominated Node", _at("status.nominatedNodeName"), wide=True),
    Column("Readiness Gates", lambda pod, now: _NONE, wide=True),
)


# Events, jobs, budgets and the rest


def _last_seen(event: Object, now: datetime) -> str:
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp") or first
    count = (event.get("series") or {}).get("count") or event.get("count") or 1
    return f"{since(last, now)} (x{count} over {since(first, now)})" if count > 1 else since(last, now)


def _involved(event: Object, now: datetime) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _event_source(event: Object, now: datetime) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


_EVENT = (
    Column("Last Seen", _last_seen),
    Column("Type", _at("type", "")),
    Column("Reason", _at("reason", "")),
    Column("Object", _involved),
    Column("Subobject", _at("involvedObject.fieldPath", ""), wide=True),
    Column("Source", _event_source, wide=True),
    Column("Message", lambda event, now: str(event.get("message", "")).strip()),
    Column(
        "First Seen", lambda event, now: since(event.get("firstTimestamp") or event.get("eventTime"), now), wide=True
    ),
    Column("Count", lambda event, now: event.get("count") or 1, wide=True, kind="integer"),
    Column("Name", _at("metadata.name"), wide=True),
)


def _job_status(job: Object, now: datetime) -> str:
    conditions = (job.get("status") or {}).get("conditions") or ()
    true = {condition["type"] for condition in conditions if condition["status"] == "True"}
    for kind, shown in (("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")):
        if kind in true:
            return shown
    return "Terminating" if "deletionTimestamp" in job["metadata"] else "Running"


def _job_span(job: Object, now: datetime) -> str:
    status = job.get("status") or {}
    if not status.get("startTime"):
        return ""
    ended = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
    return duration(ended - datetime.fromisoformat(status["startTime"]))


def _completions(job: Object, now: datetime) -> str:
    return f"{(job.get('status') or {}).get('succeeded', 0)}/{(job.get('spec') or {}).get('completions', 1)}"


_JOB = (_NAME, Column("Status", _job_status), Column("Completions", _completions), Column("Duration", _job_span), _AGE)
_BUDGET = (
    _NAME,
    Column("Min Available", _at("spec.minAvailable", "N/A")),
    Column("Max Unavailable", _at("spec.maxUnavailable", "N/A")),
    Column("Allowed Disruptions", _number("status.disruptionsAllowed"), kind="integer"),
    _AGE,
)


def _ready_of(ready: str, wanted: str) -> Callable[[Object, datetime], str]:
    return lambda obj, now: f"{_number(ready)(obj, now)}/{_number(wanted, 1)(obj, now)}"


_COLUMNS: dict[str, tuple[Column, ...]] = {
    "Node": _NODE,
    "Pod": _POD,
    "Event": _EVENT,
    "Job": _JOB,
    "PodDisruptionBudget": _BUDGET,
    "Namespace": (_NAME, Column("Status", _at("status.phase", "Active")), _AGE),
    "Lease": (_NAME, Column("Holder", _at("spec.holderIdentity", "")), _AGE),
    "ServiceAccount": (_NAME, _AGE),
    "ConfigMap": (_NAME, Column("Data", lambda obj, now: len(obj.get("data") or {}), kind="integer"), _AGE),
    "Secret": (
        _NAME,
        Column("Type", _at("type", "Opaque")),
        Column("Data", lambda obj, now: len(obj.get("data") or {}), kind="integer"),
        _AGE,
    ),
    "Service": (
        _NAME,
        Column("Type", _at("spec.type", "ClusterIP")),
        Column("Cluster-IP", _at("spec.clusterIP")),
        _AGE,
    ),
    "DaemonSet": (
        _NAME,
        Column("Desired", _number("status.desiredNumberScheduled"), kind="integer"),
        Column("Current", _number("status.currentNumberScheduled"), kind="integer"),
        Column("Ready", _number("status.numberReady"), kind="integer"),
        _AGE,
    ),
    "ReplicaSet": (
        _NAME,
        Column("Desired", _number("spec.replicas", 1), kind="integer"),
        Column("Current", _number("status.replicas"), kind="integer"),
        Column("Ready", _number("status.readyReplicas"), kind="integer"),
        _AGE,
    ),
    "Deployment": (
        _NAME,
        Column("Ready", _ready_of("status.readyReplicas", "spec.replicas")),
        Column("Up-to-date", _number("status.updatedReplicas"), kind="integer"),
        Column("Available", _number("status.availableReplicas"), kind="integer"),
        _AGE,
    ),
    "StatefulSet": (_NAME, Column("Ready", _ready_of("status.readyReplicas", "spec.replicas")), _AGE),
}
