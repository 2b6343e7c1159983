"""The columns of nodes."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from simulator.kubeapi.tables.column import AGE, NAME, NONE, UNKNOWN, Column, at

Object = dict[str, Any]


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
    return ",".join(sorted(roles - {""})) or NONE


def _address(kind: str) -> Callable[[Object, datetime], str]:
    def find(node: Object, now: datetime) -> str:
        addresses = (node.get("status") or {}).get("addresses") or ()
        return next((address["address"] for address in addresses if address["type"] == kind), NONE)

    return find


_INFO = "status.nodeInfo."
COLUMNS = (
    NAME,
    Column("Status", _node_status),
    Column("Roles", _roles),
    AGE,
    Column("Version", at(f"{_INFO}kubeletVersion", "")),
    Column("Internal-IP", _address("InternalIP"), wide=True),
    Column("External-IP", _address("ExternalIP"), wide=True),
    Column("OS-Image", at(f"{_INFO}osImage", UNKNOWN), wide=True),
    Column("Kernel-Version", at(f"{_INFO}kernelVersion", UNKNOWN), wide=True),
    Column("Container-Runtime", at(f"{_INFO}containerRuntimeVersion", UNKNOWN), wide=True),
)
