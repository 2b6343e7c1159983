"""The scheduler: binds pending pods to ready, schedulable nodes with room. Each search continues where the last one
ended."""

from typing import Any

from simulator.kubeapi import history, store
from simulator.world import nodes, pods
from simulator.world.agenda import Agenda

Object = dict[str, Any]
Key = tuple[str, str]

_PAUSE_SECONDS = 0.05  # between passes: a drain makes many pods pending at once


class Scheduler:
    """The scheduler of one cluster. GPUs are the only resource it counts."""

    def __init__(self, objects: store.Store, agenda: Agenda) -> None:
        self._objects, self._agenda = objects, agenda
        self._used: dict[str, int] = {}  # GPUs by node
        self._counted: dict[str, tuple[str, int]] = {}  # node and GPUs by pod uid
        self._waiting: dict[Key, None] = {}
        self._planned = False
        self._cursor = 0

    def pod_changed(self, change: history.ObjectChange) -> None:
        """Count the GPUs of bound pods, and remember the pending ones."""
        pod, key = change.object, store.key_of(change.object)
        node = pods.node_of(pod)
        gone = change.kind == history.DELETED
        self._count(pod, "" if gone or pods.finished(pod) else node)
        if gone or node or pods.deleting(pod) or pods.finished(pod):
            self._waiting.pop(key, None)
        elif key not in self._waiting:
            self._waiting[key] = None
            self._plan()

    def node_changed(self, change: history.ObjectChange) -> None:
        self._plan()

    def free(self, node: Object) -> int:
        """The GPUs of a node that no pod has requested."""
        capacity = int((node["status"].get("allocatable") or {}).get(nodes.GPU, 0))
        return capacity - self._used.get(node["metadata"]["name"], 0)

    def _count(self, pod: Object, node: str) -> None:
        uid = pod["metadata"]["uid"]
        before = self._counted.pop(uid, None)
        if before is not None:
            self._used[before[0]] -= before[1]
            if not node and before[1]:
                self._plan()
        if node and (wanted := pods.gpus(pod)):
            self._counted[uid] = (node, wanted)
            self._used[node] = self._used.get(node, 0) + wanted

    def _plan(self) -> None:
        if self._waiting and not self._planned:
            self._planned = True
            self._agenda.after(_PAUSE_SECONDS, self._pass)

    def _pass(self) -> None:
        self._planned = False
        entries = self._objects.collection("Node").ordered()
        refused: set[str] = set()  # kinds of pods that did not fit in this pass
        for key in list(self._waiting):
            pod = self._objects.find("Pod", *key)
            if pod is None:
                continue
            kind = repr((pod["spec"].get("nodeSelector"), pod["spec"].get("tolerations"), pods.gpus(pod)))
            if kind in refused:
                continue
            node = self._choose(pod, entries)
            if node is None:
                refused.add(kind)
                self._give_up(pod, len(entries))
            else:
                self._objects.update("Pod", pods.bound(pod, node["metadata"]["name"]))

    def _choose(self, pod: Object, entries: list[history.ObjectVersion]) -> Object | None:
        wanted = pods.gpus(pod)
        for step in range(len(entries)):
            at = (self._cursor + step) % len(entries)
            node = entries[at].obj
            if self.free(node) >= wanted and fits(pod, node):
                # A node with room left is tried again: small pods are packed, not spread over the fleet.
                self._cursor = at
                return node
        return None

    def _give_up(self, pod: Object, count: int) -> None:
        status = pod.get("status") or {}
        conditions = status.get("conditions") or ()
        if any(entry["type"] == "PodScheduled" and entry["status"] == "False" for entry in conditions):
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": f"0/{count} nodes are available: no ready, schedulable node has room.",
            "lastTransitionTime": store.timestamp(self._objects.now()),
        }
        self._objects.update("Pod", {**pod, "status": {**status, "conditions": [*conditions, condition]}})


def fits(pod: Object, node: Object) -> bool:
    """Return whether a pod may run on a node: the selector matches and every taint is tolerated."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    if nodes.ready_status(node) != "True":
        return False
    if node["spec"].get("unschedulable") and not tolerates(
        pod, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ):
        return False
    return all(
        tolerates(pod, taint)
        for taint in node["spec"].get("taints") or ()
        if taint["effect"] in ("NoSchedule", "NoExecute")
    )


def tolerates(pod: Object, taint: Object) -> bool:
    """The rule of ``core/v1.Toleration.ToleratesTaint``."""
    return any(
        (not toleration.get("effect") or toleration["effect"] == taint["effect"])
        and (not toleration.get("key") or toleration["key"] == taint["key"])
        and (
            toleration.get("operator", "Equal") == "Exists"
            or (toleration.get("value") or "") == (taint.get("value") or "")
        )
        for toleration in pod["spec"].get("tolerations") or ()
    )
