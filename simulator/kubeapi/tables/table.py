"""The table of each kind."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from simulator.kubeapi import resources
from simulator.kubeapi.tables import events, nodes, pods
from simulator.kubeapi.tables.column import AGE, NAME, Column, at, duration, number

Object = dict[str, Any]


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
    return [column.value(obj, now) for column in _of(resource)]


def _of(resource: resources.Resource) -> tuple[Column, ...]:
    return _COLUMNS.get(resource.kind, _PLAIN) if resource.typed else _CUSTOM


_PLAIN = (NAME, Column("Created At", at("metadata.creationTimestamp"), kind="date"))


def _state(obj: Object, now: datetime) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return conditions[-1]["type"] if conditions else ""


_CUSTOM = (NAME, Column("State", _state), AGE)


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


_JOB = (
    NAME,
    Column("Status", _job_status),
    Column("Completions", _completions),
    Column("Duration", _job_span),
    AGE,
)
_BUDGET = (
    NAME,
    Column("Min Available", at("spec.minAvailable", "N/A")),
    Column("Max Unavailable", at("spec.maxUnavailable", "N/A")),
    Column("Allowed Disruptions", number("status.disruptionsAllowed"), kind="integer"),
    AGE,
)


def _ready_of(ready: str, wanted: str) -> Callable[[Object, datetime], str]:
    return lambda obj, now: f"{number(ready)(obj, now)}/{number(wanted, 1)(obj, now)}"


_COLUMNS: dict[str, tuple[Column, ...]] = {
    "Node": nodes.COLUMNS,
    "Pod": pods.COLUMNS,
    "Event": events.COLUMNS,
    "Job": _JOB,
    "PodDisruptionBudget": _BUDGET,
    "Namespace": (NAME, Column("Status", at("status.phase", "Active")), AGE),
    "Lease": (NAME, Column("Holder", at("spec.holderIdentity", "")), AGE),
    "ServiceAccount": (NAME, AGE),
    "ConfigMap": (
        NAME,
        Column("Data", lambda obj, now: len(obj.get("data") or {}), kind="integer"),
        AGE,
    ),
    "Secret": (
        NAME,
        Column("Type", at("type", "Opaque")),
        Column("Data", lambda obj, now: len(obj.get("data") or {}), kind="integer"),
        AGE,
    ),
    "Service": (
        NAME,
        Column("Type", at("spec.type", "ClusterIP")),
        Column("Cluster-IP", at("spec.clusterIP")),
        AGE,
    ),
    "DaemonSet": (
        NAME,
        Column("Desired", number("status.desiredNumberScheduled"), kind="integer"),
        Column("Current", number("status.currentNumberScheduled"), kind="integer"),
        Column("Ready", number("status.numberReady"), kind="integer"),
        AGE,
    ),
    "ReplicaSet": (
        NAME,
        Column("Desired", number("spec.replicas", 1), kind="integer"),
        Column("Current", number("status.replicas"), kind="integer"),
        Column("Ready", number("status.readyReplicas"), kind="integer"),
        AGE,
    ),
    "Deployment": (
        NAME,
        Column("Ready", _ready_of("status.readyReplicas", "spec.replicas")),
        Column("Up-to-date", number("status.updatedReplicas"), kind="integer"),
        Column("Available", number("status.availableReplicas"), kind="integer"),
        AGE,
    ),
    "StatefulSet": (
        NAME,
        Column("Ready", _ready_of("status.readyReplicas", "spec.replicas")),
        AGE,
    ),
}
