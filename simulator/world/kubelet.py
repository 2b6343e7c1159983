"""The kubelet of one node: starts and stops pods, and reports the node's status after a boot.

It lives on its machine. While the machine is down, nothing happens to the node's pods. As in a real cluster, pods that
are being deleted stay Terminating until the machine is back or somebody force-deletes them.
"""

import itertools
import json
from collections.abc import Callable
from typing import Any

from simulator.kubeapi import history, store
from simulator.world import events, machine, nodes, pods, workloads
from simulator.world.agenda import Agenda, PlannedAction
from simulator.world.pace import Timings

Object = dict[str, Any]

REBOOT_LABEL = "kcover.io/reboot"
REBOOT_BOOT_ID = "KCOVER_BOOT_ID"
PAIR_LABEL = "kcover.io/pair-test"
_BUSBW_GBPS = 480.0  # of an all-reduce over all GPUs of sound machines
_NCCL_ERROR = "DistBackendError: NCCL error: unhandled system error, ncclSystemError: System call failed"
_SHARE_BY_SIZE = {2**23: 0.4, 2**27: 0.85, 2**33: 1.0}  # by bytes of a message
_MAX_BACKOFF_SECONDS = 300.0
_NODE = ""  # key of the node itself among the pods' uids


class Kubelet:
    """The kubelet of one node. ``host`` is its machine; ``number`` determines its pods' addresses."""

    def __init__(
        self,
        objects: store.Store,
        agenda: Agenda,
        pace: Timings,
        *,
        host: machine.Machine,
        spec: nodes.NodeSpec,
        number: int,
    ) -> None:
        self._objects, self._agenda, self._pace = objects, agenda, pace
        self._host, self._spec, self._number = host, spec, number
        self._addresses = itertools.cycle(range(2, 250))
        self._planned: dict[str, tuple[str, PlannedAction]] = {}  # by pod uid: its next transition
        host.listeners.append(self)

    # Called for changes in the API

    def pod_changed(self, change: history.ObjectChange) -> None:
        """A pod of this node was created, changed or deleted."""
        pod = change.object
        if change.kind == history.DELETED:
            self._cancel(pod["metadata"]["uid"])
            if pods.is_mirror(pod) and self._host.starts_kubelet:
                self._agenda.after(self._pace.start, self.ensure_mirror)
        elif self._host.starts_kubelet:
            self._attend(pod)

    def ensure_mirror(self) -> None:
        """Create the mirror pod of the node's static pod."""
        node = self._objects.find("Node", "", self._spec.name)
        if node is None or not self._host.starts_kubelet:
            return
        wanted = workloads.mirror(self._spec, node_uid=node["metadata"]["uid"])
        if self._objects.find("Pod", "kube-system", wanted["metadata"]["name"]) is None:
            self._objects.create("Pod", wanted)

    # Called by the machine

    def went_down(self) -> None:
        """Cancel all planned actions: they end with the machine."""
        for _, entry in self._planned.values():
            entry.cancel()
        self._planned.clear()

    def came_up(self) -> None:
        """Register the new boot, stop and restart the node's pods; Ready follows a moment later."""
        node = self._objects.find("Node", "", self._spec.name)
        if node is None or not self._host.starts_kubelet:
            return
        self._post(node, "False", boot_id=self._host.boot_id)
        self._emit_event(
            node,
            "Rebooted",
            f"Node {self._spec.name} has been rebooted, boot id: {self._host.boot_id}",
            kind="Warning",
        )
        self._planned[_NODE] = ("ready", self._agenda.after(self._pace.settle, self._become_ready))
        for pod in self._objects.list("Pod", fields=f"spec.nodeName={self._spec.name}"):
            if pods.phase(pod) == "Running" and not pods.deleting(pod):
                self._after_boot(pod)
            else:
                self._attend(pod)

    # Program faults

    def crash(self, pod: Object, *, message: str, exit_code: int = 1) -> None:
        """End a container of a pod with an error; its restart policy decides what follows."""
        if not self._host.starts_kubelet or pods.phase(pod) != "Running" or pods.deleting(pod):
            return
        if pod["spec"].get("restartPolicy") == "Never":
            self._write(pods.ended(self._objects, pod, succeeded=False, message=message))
            return
        wait = min(self._pace.back_off * 2 ** min(pods.restarts(pod), 10), _MAX_BACKOFF_SECONDS)
        self._plan("restart", pod, wait, self._restart)
        self._write(pods.crashed(self._objects, pod, message=message, exit_code=exit_code))

    # Transitions of pods

    def _attend(self, pod: Object) -> None:
        """Plan the next transition of a pod, unless one is planned already."""
        doing = self._planned.get(pod["metadata"]["uid"], ("",))[0]
        if pods.deleting(pod):
            if doing != "end":
                grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
                self._plan("end", pod, min(self._pace.grace, grace), self._end)
        elif pods.phase(pod) == "Pending" and not doing:
            self._plan("start", pod, self._pace.start, self._start)

    def _plan(self, what: str, pod: Object, seconds: float, then: Callable[[Object], None]) -> None:
        """Run an action on a pod later, if the pod still exists with the same uid. Replaces what was planned for it."""
        namespace, name = store.key_of(pod)
        uid = pod["metadata"]["uid"]

        def act() -> None:
            self._planned.pop(uid, None)
            found = self._objects.find("Pod", namespace, name)
            if found is not None and found["metadata"]["uid"] == uid:
                then(found)

        self._cancel(uid)
        self._planned[uid] = (what, self._agenda.after(seconds, act))

    def _cancel(self, uid: str) -> None:
        if planned := self._planned.pop(uid, None):
            planned[1].cancel()

    def _start(self, pod: Object) -> None:
        self._write(pods.running(self._objects, pod, address=self._address(pod)))
        if (pod["metadata"].get("labels") or {}).get(REBOOT_LABEL) == "true":
            self._plan("run", pod, self._pace.run, self._run_reboot)
        elif PAIR_LABEL in (pod["metadata"].get("labels") or {}):
            self._plan("run", pod, self._pace.settle, self._measure)
        elif pods.runs_to_end(pod):
            self._plan("run", pod, self._pace.run, self._run_to_end)

    def _run_reboot(self, pod: Object) -> None:
        """The container of a reboot job: compares boot IDs, then takes the machine down, and the pod with it."""
        wanted = pods.env(pod, REBOOT_BOOT_ID)
        if wanted == self._host.boot_id:
            namespace, name = store.key_of(pod)
            self._host.reboot(f"job pod {namespace}/{name}")
        else:
            message = "no boot id to compare with" if not wanted else f"boot {wanted} is over, nothing to do"
            self._write(pods.ended(self._objects, pod, succeeded=bool(wanted), message=message))

    def _measure(self, pod: Object) -> None:
        """The container of a pair test: an all-reduce, as fast as this machine is, unless NCCL fails on it."""
        if self._host.nccl_fails:
            self._write(pods.ended(self._objects, pod, succeeded=False, message=_NCCL_ERROR))
            return
        busbw = {str(size): round(_BUSBW_GBPS * share * self._host.speed, 3) for size, share in _SHARE_BY_SIZE.items()}
        gpus = self._host.inventory.gpus
        result = {"busbw": busbw, "device": gpus[0].model if gpus else ""}
        self._write(pods.ended(self._objects, pod, succeeded=True, message=json.dumps(result)))

    def _run_to_end(self, pod: Object) -> None:
        self._write(pods.ended(self._objects, pod, succeeded=True))

    def _end(self, pod: Object) -> None:
        namespace, name = store.key_of(pod)
        self._objects.delete("Pod", namespace, name, grace=0, uid=pod["metadata"]["uid"])

    def _restart(self, pod: Object) -> None:
        states = (pod.get("status") or {}).get("containerStatuses")
        crash = (states[0].get("state") or {}).get("terminated") if states else None
        again = pods.running(
            self._objects, pod, address=self._address(pod), restarts=pods.restarts(pod) + 1, crash=crash
        )
        self._write(again)

    def _after_boot(self, pod: Object) -> None:
        """Fail a container that ran when the machine went down. The kubelet finds it dead, without an exit code."""
        message = "the container could not be located when the pod was started"
        if pod["spec"].get("restartPolicy") == "Never":
            self._write(pods.ended(self._objects, pod, succeeded=False, message=message, reason="NodeRebooted"))
        else:
            self._plan("restart", pod, self._pace.start, self._restart)
            self._write(pods.crashed(self._objects, pod, message=message, exit_code=255))

    def _become_ready(self) -> None:
        self._planned.pop(_NODE, None)
        node = self._objects.find("Node", "", self._spec.name)
        if node is not None:
            self._post(node, "True", boot_id=self._host.boot_id)
            self._emit_event(node, "NodeReady", f"Node {self._spec.name} status is now: NodeReady")

    def _post(self, node: Object, status: str, *, boot_id: str) -> None:
        """Post the node's status as kubelets do: conditions and node info, nothing of its spec."""
        info = {**node["status"]["nodeInfo"], "bootID": boot_id}
        changed = {**node, "status": {**node["status"], "nodeInfo": info}}
        self._objects.update("Node", nodes.with_ready(changed, status, store.timestamp(self._objects.now())))

    def _emit_event(self, node: Object, reason: str, message: str, *, kind: str = "Normal") -> None:
        events.emit(self._objects, node, reason=reason, message=message, kind=kind, component="kubelet")

    def _write(self, pod: Object) -> None:
        self._objects.update("Pod", pod)

    def _address(self, pod: Object) -> str:
        return str((pod.get("status") or {}).get("podIP") or self._new_address())

    def _new_address(self) -> str:
        return f"10.{128 + self._number // 256 % 128}.{self._number % 256}.{next(self._addresses)}"
