"""The Events that a cluster's own components write: repeated ones raise a count, as their recorders do."""

from typing import Any

from simulator.kubeapi import store

Object = dict[str, Any]


def emit(
    objects: store.Store, about: Object, *, reason: str, message: str, kind: str = "Normal", component: str
) -> None:
    """Write an Event, or count it up. ``kind`` is ``Normal`` or ``Warning``. Events on nodes go to ``default``."""
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
        involved["uid"] = metadata["name"]  # kubelets know their node by its name only
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
