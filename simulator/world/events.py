"""The Events that a cluster's own components write. As in their recorders, a repeated Event raises a count."""

from typing import Any

from simulator.kubeapi import store

Object = dict[str, Any]


def emit(
    objects: store.Store, about: Object, *, reason: str, message: str, kind: str = "Normal", component: str
) -> None:
    """Write an Event, or raise its count. ``kind`` is ``Normal`` or ``Warning``. Events about nodes go to
    ``default``."""
    metadata = about["metadata"]
    namespace = metadata.get("namespace", "")
    name = f"{metadata['name']}.{reason.lower()}"
    at = store.timestamp(objects.now())
    old = objects.find("Event", namespace or "default", name)
    if old is not None:
        objects.update("Event", {**old, "message": message, "count": old["count"] + 1, "lastTimestamp": at})
        return
    involved = {"kind": about["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    if namespace:
        involved |= {"namespace": namespace, "apiVersion": about["apiVersion"]}
    else:
        involved["uid"] = metadata["name"]  # kubelets know only the name of their node
    event: Object = {
        "metadata": {"namespace": namespace or "default", "name": name},
        "involvedObject": involved,
        "reason": reason,
        "message": message,
        "type": kind,
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": "",
    }
    objects.create("Event", event)
