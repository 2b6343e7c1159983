"""Disruption budgets: how many pods may be evicted, kept up to date as the disruption controller does.

A budget's status is a function of the pods that its selector matches. After a change to a pod or a budget it is
recomputed when somebody reads it, and after a short delay for those who watch.
"""

import asyncio
import contextlib
import math
from typing import Any

from simulator.kubeapi import history, resources, selectors, store
from simulator.kubeapi.collection import Key

Object = dict[str, Any]
Terms = tuple[selectors.Requirement, ...]

_SETTLE_SECONDS = 0.02  # a burst of pod changes causes one recount


class Budgets:
    def __init__(self, objects: store.Store) -> None:
        self._store = objects
        self._selectors: dict[str, dict[str, Terms]] = {}  # by namespace and name
        self._stale: set[Key] = set()
        self._timer: asyncio.TimerHandle | None = None
        objects.subscribe(self._changed)

    def protecting(self, pod: Object) -> list[Object]:
        """The budgets that cover a pod, with their current status."""
        self.settle()
        namespace = pod["metadata"]["namespace"]
        names = sorted(self._covering(namespace, pod))
        return [self._store.get("PodDisruptionBudget", namespace, name) for name in names]

    def settle(self) -> None:
        """Bring the status of every budget up to date."""
        while self._stale:
            namespace, name = self._stale.pop()
            budget = self._store.find("PodDisruptionBudget", namespace, name)
            if budget:
                status = self._status(budget)
                if budget.get("status") != status:
                    self._store.update("PodDisruptionBudget", {**budget, "status": status})

    def _covering(self, namespace: str, pod: Object) -> list[str]:
        labels = pod["metadata"].get("labels") or {}
        known = self._selectors.get(namespace, {})
        return [name for name, terms in known.items() if all(term.matches(labels) for term in terms)]

    def _changed(self, change: history.ObjectChange) -> None:
        namespace, name = store.key_of(change.object)
        if change.resource is resources.BUDGETS:
            known = self._selectors.setdefault(namespace, {})
            if change.kind == history.DELETED:
                known.pop(name, None)
                return
            if change.before and change.before["spec"] == change.object["spec"]:
                return  # only its status changed, which is written here
            known[name] = selectors.from_object(change.object["spec"].get("selector") or {})
            self._stale.add((namespace, name))
        elif change.resource is resources.PODS and namespace in self._selectors:
            if change.kind == history.MODIFIED and change.before and _weight(change.before) == _weight(change.object):
                return
            for pod in (change.before, change.object):
                if pod:
                    self._stale |= {(namespace, budget) for budget in self._covering(namespace, pod)}
        if self._stale and self._timer is None:
            with contextlib.suppress(RuntimeError):  # no event loop: recounted on the next read
                self._timer = asyncio.get_running_loop().call_later(_SETTLE_SECONDS, self._settle_later)

    def _settle_later(self) -> None:
        self._timer = None
        self.settle()

    def _status(self, budget: Object) -> Object:
        namespace = budget["metadata"]["namespace"]
        selection = selectors.Selection(namespace, selectors.from_object(budget["spec"].get("selector") or {}))
        entries = self._store.collection("Pod").candidates(selection)
        pods = selectors.matching((entry.obj for entry in entries), selection)
        healthy = sum(is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods)
        expected, desired = self._wanted(budget["spec"], pods)
        allowed = max(healthy - desired, 0) if expected else 0
        return {
            "observedGeneration": budget["metadata"]["generation"],
            "expectedPods": expected,
            "desiredHealthy": desired,
            "currentHealthy": healthy,
            "disruptionsAllowed": allowed,
            "conditions": [self._condition(budget, allowed)],
        }

    def _wanted(self, spec: Object, pods: list[Object]) -> tuple[int, int]:
        """Expected pods, and how many of them must stay healthy; percentages round up, as in the controller.

        The real controller needs the owners' scale for ``maxUnavailable`` and percentages, and fails for owners without
        one. Here the ``replicas`` of an owner are used if it has them; otherwise its pods are counted.
        """
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        if isinstance(least, int):
            return len(pods), least
        expected = self._scale(pods)
        if least is not None:
            return expected, _share(least, expected)
        return expected, max(expected - _share(1 if most is None else most, expected), 0)

    def _scale(self, pods: list[Object]) -> int:
        replicas: dict[str, int] = {}
        loose = 0
        for pod in pods:
            owner = next((ref for ref in pod["metadata"].get("ownerReferences") or () if ref.get("controller")), None)
            found = None
            if owner and owner["kind"] in ("ReplicaSet", "StatefulSet", "Deployment"):
                found = self._store.find(owner["kind"], pod["metadata"]["namespace"], owner["name"])
            if owner and found:
                replicas[owner["uid"]] = found["spec"].get("replicas", 1)
            else:
                loose += 1
        return sum(replicas.values()) + loose

    def _condition(self, budget: Object, allowed: int) -> Object:
        status, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
        for old in (budget.get("status") or {}).get("conditions") or ():
            if old["type"] == "DisruptionAllowed" and old["status"] == status:
                return {**old, "reason": reason, "observedGeneration": budget["metadata"]["generation"]}
        return {
            "type": "DisruptionAllowed",
            "status": status,
            "reason": reason,
            "message": "",
            "observedGeneration": budget["metadata"]["generation"],
            "lastTransitionTime": store.timestamp(self._store.now()),
        }


def _share(amount: int | str, total: int) -> int:
    """A count, or a percentage of ``whole`` rounded up."""
    return amount if isinstance(amount, int) else math.ceil(int(amount.removesuffix("%")) * total / 100)


def _weight(pod: Object) -> tuple[bool, bool, Object]:
    """All properties of a pod that matter to a budget."""
    metadata = pod["metadata"]
    return is_ready(pod), "deletionTimestamp" in metadata, metadata.get("labels") or {}


def is_ready(pod: Object) -> bool:
    """Return whether the pod's Ready condition is true; budgets call such a pod healthy."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
