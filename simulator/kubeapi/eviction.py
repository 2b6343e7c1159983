"""Eviction: a deletion that checks the disruption budgets first (``pkg/registry/core/pod/storage/eviction.go``)."""

from typing import Any

from simulator.kubeapi import budgets, errors, store

Object = dict[str, Any]

_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
_TWO_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_UNGUARDED_PHASES = ("Pending", "Succeeded", "Failed")


def evict(
    objects: store.Store,
    guard: budgets.Budgets,
    namespace: str,
    name: str,
    *,
    grace: int | None = None,
    uid: str = "",
    version: str = "",
    dry_run: bool = False,
) -> None:
    """Begin to delete a pod if its budget allows it.

    ``uid`` and ``version`` are preconditions. Raises ``ApiError``: 404, 409 if a precondition does not hold, 429 naming
    the budget, 500 if two budgets cover the pod. As in a real cluster, a 429 because of a budget has no
    ``Retry-After``; pods that are pending, finished or being deleted are not protected; and budgets are checked before
    the preconditions.
    """
    pod = objects.get("Pod", namespace, name)
    metadata = pod["metadata"]
    going = "deletionTimestamp" in metadata
    if not going and (pod.get("status") or {}).get("phase") not in _UNGUARDED_PHASES:
        _ask(guard.protecting(pod), pod)
    if uid and uid != metadata["uid"]:
        raise errors.uid_conflict("", "Pod", name, wanted=uid, found=metadata["uid"])
    if version and version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
            f"({metadata['resourceVersion']}). The object might have been modified"
        )
        raise errors.conflict("", "Pod", name, why)
    if dry_run:
        return
    if not going:
        _mark(objects, pod)
    objects.delete("Pod", namespace, name, grace=grace)


def _ask(protecting: list[Object], pod: Object) -> None:
    if len(protecting) > 1:
        raise errors.ApiError(500, "", _TWO_BUDGETS)
    for budget in protecting:
        status = budget["status"]
        needed, healthy = status["desiredHealthy"], status["currentHealthy"]
        always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if not budgets.is_ready(pod) and (always or healthy >= needed > 0):
            continue
        if status["disruptionsAllowed"] == 0:
            name = budget["metadata"]["name"]
            why = f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
            raise errors.too_many_requests(_REFUSED, causes=[{"reason": "DisruptionBudget", "message": why}])


def _mark(objects: store.Store, pod: Object) -> None:
    """Record on the pod that it was evicted."""
    status = pod.get("status") or {}
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": store.timestamp(objects.now()),
    }
    others = [condition for condition in status.get("conditions") or () if condition["type"] != "DisruptionTarget"]
    objects.update("Pod", {**pod, "status": {**status, "conditions": [*others, target]}})
