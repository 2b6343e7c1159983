"""Pod objects: their requests, their owners, and the states that a kubelet reports."""

from collections.abc import Sequence
from typing import Any

from simulator.kubeapi import store
from simulator.world import nodes, workloads

Object = dict[str, Any]


def gpus(pod: Object) -> int:
    """The GPUs that a pod's containers request."""
    total = 0
    for container in pod["spec"].get("containers") or ():
        resources = container.get("resources") or {}
        wanted = (resources.get("limits") or {}).get(nodes.GPU) or (resources.get("requests") or {}).get(nodes.GPU)
        total += int(wanted or 0)
    return total


def node_of(pod: Object) -> str:
    """The node to which a pod is bound, or an empty string."""
    return str(pod["spec"].get("nodeName") or "")


def phase(pod: Object) -> str:
    """``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def finished(pod: Object) -> bool:
    """Return whether none of the pod's containers will run again."""
    return phase(pod) in ("Succeeded", "Failed")


def deleting(pod: Object) -> bool:
    """Return whether the pod's deletion has begun."""
    return "deletionTimestamp" in pod["metadata"]


def controller(obj: Object) -> Object | None:
    """The owner reference of the object's controller; None without one."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Object = reference
            return found
    return None


def is_daemon(pod: Object) -> bool:
    owner = controller(pod)
    return owner is not None and owner["kind"] == "DaemonSet"


def is_batch(owner: Object) -> bool:
    """Return whether an owner reference names a batch Job; Volcano's jobs have the same kind."""
    return owner["kind"] == "Job" and str(owner.get("apiVersion", "")).startswith("batch/")


def runs_to_end(pod: Object) -> bool:
    """Return whether the pod ends by itself soon: a batch Job's does, unless it trains as part of a JobSet."""
    owner = controller(pod)
    trains = "jobset.sigs.k8s.io/jobset-name" in (pod["metadata"].get("labels") or {})
    return owner is not None and is_batch(owner) and not trains


def is_mirror(pod: Object) -> bool:
    """Return whether the pod is the mirror pod of a static pod."""
    return workloads.MIRROR in (pod["metadata"].get("annotations") or {})


def ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def env(pod: Object, name: str) -> str | None:
    """The literal value of an environment variable in any of its containers."""
    for container in pod["spec"].get("containers") or ():
        for variable in container.get("env") or ():
            if variable.get("name") == name:
                return str(variable.get("value") or "")
    return None


def from_template(template: Object, owner: Object, *, name: str = "", labels: Object | None = None) -> Object:
    """A pod as a controller creates it: owned, and named after its owner unless a name is given. Parts are shared."""
    inner = template.get("metadata") or {}
    metadata: Object = {
        "namespace": owner["metadata"]["namespace"],
        "labels": {**(inner.get("labels") or {}), **(labels or {})},
        "ownerReferences": [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    if inner.get("annotations"):
        metadata["annotations"] = inner["annotations"]
    if name:
        metadata["name"] = name
    else:
        metadata["generateName"] = f"{owner['metadata']['name']}-"
    return {"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}}


def bound(pod: Object, node: str) -> Object:
    """The pod after the scheduler has bound it."""
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}


def with_ready(objects: store.Store, pod: Object, *, ready: bool) -> Object:
    """The pod with its Ready condition set; its other conditions stay."""
    status = pod.get("status") or {}
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastTransitionTime": store.timestamp(objects.now()),
    }
    others = [entry for entry in status.get("conditions") or () if entry["type"] != "Ready"]
    return {**pod, "status": {**status, "conditions": [*others, condition]}}


def running(
    objects: store.Store, pod: Object, *, address: str, restarts: int = 0, crash: Object | None = None
) -> Object:
    """The pod with all containers running. ``crash``: the terminated state of the container before it, if any."""
    at = store.timestamp(objects.now())
    status = pod.get("status") or {}
    states = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "ready": True,
            "started": True,
            "restartCount": restarts,
            "state": {"running": {"startedAt": at}},
            "lastState": {"terminated": crash} if crash else {},
        }
        for container in pod["spec"].get("containers") or ()
    ]
    new = {
        **status,
        "phase": "Running",
        "startTime": status.get("startTime", at),
        "podIP": address,
        "containerStatuses": states,
        "conditions": [
            *(
                entry
                for entry in status.get("conditions") or ()
                if entry["type"] not in ("PodScheduled", "Initialized", "ContainersReady")
            ),
            *(
                {"type": kind, "status": "True", "lastTransitionTime": at}
                for kind in ("PodScheduled", "Initialized", "ContainersReady")
            ),
        ],
    }
    return with_ready(objects, {**pod, "status": new}, ready=True)


def ended(objects: store.Store, pod: Object, *, succeeded: bool, message: str = "", reason: str = "") -> Object:
    """The pod after its containers have ended for good."""
    state = terminated(
        objects, exit_code=0 if succeeded else 1, reason="Completed" if succeeded else "Error", message=message
    )
    states = _ended_states(pod, state)
    status = {**(pod.get("status") or {}), "phase": "Succeeded" if succeeded else "Failed", "containerStatuses": states}
    if reason:
        status |= {"reason": reason, "message": message}
    return with_ready(objects, {**pod, "status": status}, ready=False)


def crashed(objects: store.Store, pod: Object, *, message: str, exit_code: int = 1) -> Object:
    """The pod after a container ended with an error, and before its kubelet restarts it."""
    state = terminated(objects, exit_code=exit_code, reason="Error", message=message)
    status = {**(pod.get("status") or {}), "containerStatuses": _ended_states(pod, state)}
    return with_ready(objects, {**pod, "status": status}, ready=False)


def restarts(pod: Object) -> int:
    """The restart count of its first container."""
    states: Sequence[Object] = (pod.get("status") or {}).get("containerStatuses") or ({},)
    return int(states[0].get("restartCount", 0))


def terminated(objects: store.Store, *, exit_code: int, reason: str, message: str) -> Object:
    return {
        "exitCode": exit_code,
        "reason": reason,
        "message": message,
        "finishedAt": store.timestamp(objects.now()),
    }


def _ended_states(pod: Object, state: Object) -> list[Object]:
    count = restarts(pod)
    return [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "ready": False,
            "started": False,
            "restartCount": count,
            "state": {"terminated": state},
            "lastState": {},
        }
        for container in pod["spec"].get("containers") or ()
    ]
