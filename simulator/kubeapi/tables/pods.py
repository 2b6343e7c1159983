"""The columns of pods."""

from datetime import datetime
from typing import Any

from simulator.kubeapi.tables.column import AGE, NAME, NONE, Column, at, since

Object = dict[str, Any]


def _containers(pod: Object) -> list[Object]:
    return list((pod.get("status") or {}).get("containerStatuses") or ())


def _pod_ready(pod: Object, now: datetime) -> str:
    ready = sum(bool(status.get("ready")) for status in _containers(pod))
    return f"{ready}/{len((pod.get('spec') or {}).get('containers') or ())}"


def _pod_status(pod: Object, now: datetime) -> str:
    """The STATUS of a pod: its phase, unless a container or its deletion gives a more specific reason."""
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


COLUMNS = (
    NAME,
    Column("Ready", _pod_ready),
    Column("Status", _pod_status),
    Column("Restarts", _restarts),
    AGE,
    Column("IP", at("status.podIP"), wide=True),
    Column("Node", at("spec.nodeName"), wide=True),
    Column("Nominated Node", at("status.nominatedNodeName"), wide=True),
    Column("Readiness Gates", lambda pod, now: NONE, wide=True),
)
