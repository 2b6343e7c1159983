"""The defaults that the API server fills in when an object is created, as far as clients of this cluster read them."""

from typing import Any

Object = dict[str, Any]

_POD_SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "serviceAccountName": "default",
    "enableServiceLinks": True,
}
_EVENT: Object = {  # how Go encodes an Event's unset fields; clients must cope with it
    "eventTime": None,
    "firstTimestamp": None,
    "lastTimestamp": None,
    "reportingComponent": "",
    "reportingInstance": "",
    "source": {},
}
_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"


def fill(kind: str, obj: Object, *, uid: str) -> Object:
    """The object with its defaults; the argument is not changed. ``uid`` will be the new object's."""
    if kind == "Pod":
        return {**obj, "spec": _pod_spec(obj.get("spec") or {}), "status": _pod_status(obj.get("status") or {})}
    if kind == "Job":
        return _job(obj, uid)
    if kind == "Namespace":
        name = obj["metadata"]["name"]
        labels = {**(obj["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": name}
        metadata = {**obj["metadata"], "labels": labels}
        return {**obj, "metadata": metadata, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    if kind == "PersistentVolumeClaim":
        return {**obj, "status": obj.get("status") or {"phase": "Pending"}}
    if kind == "Event":
        return {**_EVENT, **obj}
    if kind == "Node":
        return {**obj, "spec": _node_spec(obj.get("spec") or {}), "status": obj.get("status") or {}}
    return obj


def _node_spec(spec: Object) -> Object:
    """A new node takes no pods until the lifecycle controller has seen it ready (admission plugin
    TaintNodesByCondition)."""
    taints = spec.get("taints") or []
    if any(taint.get("key") == _NOT_READY and taint.get("effect") == "NoSchedule" for taint in taints):
        return spec
    return {**spec, "taints": [*taints, {"key": _NOT_READY, "effect": "NoSchedule"}]}


def _pod_spec(spec: Object) -> Object:
    tolerations = list(spec.get("tolerations") or ())
    for key in (_NOT_READY, _UNREACHABLE):
        if not any(toleration.get("key") in (key, None) for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    return {**_POD_SPEC, **spec, "tolerations": tolerations}


def _pod_status(status: Object) -> Object:
    return {"phase": "Pending", "qosClass": "BestEffort", **status}


def _job(obj: Object, uid: str) -> Object:
    """A job gets a selector by its own uid, which its pod template carries, so that two jobs never share pods."""
    spec = obj.get("spec") or {}
    name = obj["metadata"]["name"]
    template = spec.get("template") or {}
    metadata = template.get("metadata") or {}
    own = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    labelled = {**metadata, "labels": {**(metadata.get("labels") or {}), **own}}
    pod = {"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30}
    filled = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
        **spec,
        "template": {**template, "metadata": labelled, "spec": {**pod, **(template.get("spec") or {})}},
    }
    return {**obj, "spec": filled, "status": {}}
