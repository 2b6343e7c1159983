"""The node lifecycle controller: detects silent kubelets, taints nodes that are not ready or cordoned, evicts lost
pods.

As in a real cluster the controller adds and removes only its own taints. The taint ``out-of-service`` is somebody
else's: all pods of such a node are deleted with force while it is not ready (taint eviction and the pod garbage
collector).
"""

from typing import Any

from simulator.kubeapi import history, store
from simulator.world import events, machine, nodes, pods
from simulator.world.agenda import Agenda, PlannedAction
from simulator.world.pace import Timings

Object = dict[str, Any]

_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_OWN = {(_NOT_READY, "NoSchedule"), (_NOT_READY, "NoExecute"), (_UNREACHABLE, "NoSchedule"),
        (_UNREACHABLE, "NoExecute"), (_UNSCHEDULABLE, "NoSchedule")}  # fmt: skip


class HeartbeatWatcher:
    """Listens to a machine on behalf of the controller. Its silence is noticed after a delay."""

    def __init__(self, controller: "NodeLifecycle", host: machine.Machine) -> None:
        self._controller, self._host = controller, host

    def went_down(self) -> None:
        self._controller.heartbeat_lost(self._host.name)

    def came_up(self) -> None:
        if self._host.starts_kubelet:
            self._controller.heartbeat_back(self._host.name)


class NodeLifecycle:
    def __init__(self, objects: store.Store, agenda: Agenda, pace: Timings) -> None:
        self._objects, self._agenda, self._pace = objects, agenda, pace
        self._noticing: dict[str, PlannedAction] = {}
        self._evicting: dict[str, PlannedAction] = {}

    def watch(self, host: machine.Machine) -> None:
        host.listeners.append(HeartbeatWatcher(self, host))

    def heartbeat_lost(self, name: str) -> None:
        """The kubelet has stopped posting its status."""
        self._noticing[name] = self._agenda.after(self._pace.notice, lambda: self._lost(name))

    def heartbeat_back(self, name: str) -> None:
        """The kubelet posts again; the node's status carries what it reports."""
        if entry := self._noticing.pop(name, None):
            entry.cancel()

    def node_changed(self, change: history.ObjectChange) -> None:
        """Reconcile the controller's own taints, and the readiness of the pods, with a node."""
        if change.kind == history.DELETED:
            return
        node = change.object
        name = node["metadata"]["name"]
        status = nodes.ready_status(node)
        self._taint(node, status)
        if status != "True" and _is_out_of_service(node):
            self._agenda.after(self._pace.grace, lambda: self._free(name))
        if status == "True":
            if entry := self._evicting.pop(name, None):
                entry.cancel()
        elif change.before is None or nodes.ready_status(change.before) == "True":
            self._evicting[name] = self._agenda.after(self._pace.evict, lambda: self._evict(name))

    def _lost(self, name: str) -> None:
        self._noticing.pop(name, None)
        node = self._objects.find("Node", "", name)
        if node is None:
            return
        self._objects.update("Node", nodes.with_ready(node, "Unknown", store.timestamp(self._objects.now())))
        events.emit(
            self._objects,
            node,
            reason="NodeNotReady",
            message=f"Node {name} status is now: NodeNotReady",
            component="node-controller",
        )
        for pod in self._objects.list("Pod", fields=f"spec.nodeName={name}"):
            if pods.ready(pod):
                self._objects.update("Pod", pods.with_ready(self._objects, pod, ready=False))

    def _taint(self, node: Object, status: str) -> None:
        wanted = {
            "True": [],
            "False": [(_NOT_READY, "NoSchedule"), (_NOT_READY, "NoExecute")],
            "Unknown": [(_UNREACHABLE, "NoSchedule"), (_UNREACHABLE, "NoExecute")],
        }[status]
        if node["spec"].get("unschedulable"):
            wanted.append((_UNSCHEDULABLE, "NoSchedule"))
        old = node["spec"].get("taints") or []
        kept = [taint for taint in old if _name(taint) not in _OWN or _name(taint) in wanted]
        known = {_name(taint) for taint in kept}
        at = store.timestamp(self._objects.now())
        added = [{"key": k, "effect": e, "timeAdded": at} for k, e in wanted if (k, e) not in known]
        if added or len(kept) != len(old):
            spec = {**node["spec"], "taints": [*kept, *added]}
            if not spec["taints"]:
                del spec["taints"]
            self._objects.update("Node", {**node, "spec": spec})

    def _evict(self, name: str) -> None:
        """Delete the pods of a lost node. They stay Terminating until its kubelet is back."""
        self._evicting.pop(name, None)
        for pod in self._objects.list("Pod", fields=f"spec.nodeName={name}"):
            if not (pods.deleting(pod) or pods.finished(pod) or pods.is_daemon(pod) or pods.is_mirror(pod)):
                self._objects.delete("Pod", *store.key_of(pod))

    def _free(self, name: str) -> None:
        """Delete all pods of a node that is out of service, without asking its kubelet."""
        node = self._objects.find("Node", "", name)
        if node is None or nodes.ready_status(node) == "True" or not _is_out_of_service(node):
            return
        for pod in self._objects.list("Pod", fields=f"spec.nodeName={name}"):
            self._objects.delete("Pod", *store.key_of(pod), grace=0)


def _is_out_of_service(node: Object) -> bool:
    return any(taint["key"] == OUT_OF_SERVICE for taint in node["spec"].get("taints") or ())


def _name(taint: Object) -> tuple[str, str]:
    return taint["key"], taint["effect"]
