"""The node that a request concerns, for the log of requests."""

from typing import Any

from simulator.kubeapi import resources

Object = dict[str, Any]
OF_NODES = (
    resources.PODS,
    resources.JOBS,
    resources.MACHINES,
    resources.NODE_CLAIMS,
    resources.REBOOT_NODES,
    resources.GPU_RESETS,
    resources.DEVICE_TAINT_RULES,
)  # objects that concern one node each


def node_of(resource: resources.Resource, name: str, *, found: Object | None, body: Object) -> str:
    """The node's name; "" if the request concerns none. ``found``: the object before the request; None: a new one."""
    if resource is resources.NODES:
        return name
    if resource not in OF_NODES or (resource is resources.PODS and found is None):
        return ""
    spec, status = _part(found or body, "spec"), _part(found or body, "status")
    if resource is resources.DEVICE_TAINT_RULES:
        return str(_part(spec, "deviceSelector").get("pool") or "")  # drivers name the pool of a node after it
    if resource is resources.JOBS:
        pinned = _part(_part(spec, "template"), "spec")
        return str(pinned.get("nodeName") or _part(pinned, "nodeSelector").get("kubernetes.io/hostname") or "")
    return str(spec.get("nodeName") or status.get("nodeName") or _part(status, "nodeRef").get("name") or "")


def _part(whole: Object, name: str) -> Object:
    found = whole.get(name)
    return found if isinstance(found, dict) else {}
