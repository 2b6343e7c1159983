"""The controllers of other systems that act on machines: Cluster API, Karpenter and NVSentinel's janitor.

A node has a Machine or a NodeClaim once somebody asks for one (``stand_for``). If that object is deleted, the machine
is switched off, its node goes, and another machine registers under the same name: with another uid, system UUID and
providerID, without faults, and with the readiness taint.
"""

from collections.abc import Mapping
from typing import Any, Final

from simulator.kubeapi import history, resources, store
from simulator.world import machine, nodes
from simulator.world.agenda import Agenda

Object = dict[str, Any]
FINALIZER: Final = "simulator/machine"
NAMESPACE: Final = "default"  # of Machines
READINESS_TAINT: Final = {"key": "kcover.io/not-ready", "effect": "NoSchedule"}
TERMINATED_SECONDS: Final = 1.0  # from the deletion of an object until its machine has gone
TAKEN_SECONDS: Final = 0.5  # until the janitor acts on an object
KINDS: Final = {"Machine": resources.MACHINES, "NodeClaim": resources.NODE_CLAIMS}
_OTHER_NUMBERS: Final = 100_000  # between the numbers of a machine and of the one that replaces it


class _Registration:
    """The kubelet's registration: it creates the node of a machine that is up and has none."""

    def __init__(self, owners: "MachineOwners", name: str) -> None:
        self._owners, self._name = owners, name

    def went_down(self) -> None:
        """Nothing: the node stays."""

    def came_up(self) -> None:
        self._owners.register(self._name)


class MachineOwners:
    """``machines`` and ``specs``: of all nodes, by name."""

    def __init__(
        self,
        objects: store.Store,
        agenda: Agenda,
        *,
        machines: Mapping[str, machine.Machine],
        specs: Mapping[str, nodes.NodeSpec],
    ) -> None:
        self._objects, self._agenda, self._machines, self._specs = objects, agenda, machines, specs
        self._kinds: dict[str, str] = {}  # by node: the kind of its object
        self._numbers = {name: number for number, name in enumerate(specs)}

    def stand_for(self, name: str, kind: str) -> Object:
        """Creates the object of a node's machine."""
        if name not in self._kinds:
            self._machines[name].listeners.insert(0, _Registration(self, name))
        self._kinds[name] = kind
        return self._create(name)

    def changed(self, change: history.ObjectChange) -> None:
        """An object of one of the kinds was created, changed or deleted."""
        found, kind = change.object, change.resource.kind
        if kind in KINDS and change.kind != history.DELETED and "deletionTimestamp" in found["metadata"]:
            name = _node_of(found)
            if FINALIZER in (found["metadata"].get("finalizers") or ()) and name in self._machines:
                self._agenda.after(TERMINATED_SECONDS, lambda: self._terminate(kind, found, name))
        elif change.kind == history.ADDED and found["spec"].get("nodeName") in self._machines:
            act = {"RebootNode": self._reboot, "GPUReset": self._reset}.get(kind)
            if act is not None:
                self._agenda.after(TAKEN_SECONDS, lambda: act(found))

    def register(self, name: str) -> None:
        """Creates the node of another machine, and its object."""
        if self._objects.find("Node", "", name) is not None:
            return
        self._numbers[name] += _OTHER_NUMBERS
        number, at = self._numbers[name], store.timestamp(self._objects.now())
        boot_id = self._machines[name].boot_id
        node = nodes.render(self._specs[name], number=number, boot_id=boot_id, at=at, images=[])
        node["spec"] |= {"providerID": f"simulator://{name}/{number}", "taints": [dict(READINESS_TAINT)]}
        self._objects.create("Node", node)
        self._create(name)

    def _create(self, name: str) -> Object:
        node, kind = self._objects.get("Node", "", name), self._kinds[name]
        provider, claims = node["spec"]["providerID"], kind == "NodeClaim"
        suffix = self._numbers[name] // _OTHER_NUMBERS
        metadata: Object = {"name": f"{name}-{suffix}", "finalizers": [FINALIZER]}
        if not claims:
            owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "gpu", "uid": "gpu"}
            metadata |= {"namespace": NAMESPACE, "ownerReferences": [{**owner, "controller": True}]}
        info = {"systemUUID": node["status"]["nodeInfo"]["systemUUID"]}
        status = {"nodeName": name, "providerID": provider} if claims else {"nodeRef": {"name": name}, "nodeInfo": info}
        made = {"metadata": metadata, "spec": {} if claims else {"providerID": provider}, "status": status}
        return self._objects.create(KINDS[kind], made)

    def _terminate(self, kind: str, found: Object, name: str) -> None:
        """The machine and its node go; another machine is switched on."""
        key = store.key_of(found)
        if self._objects.find(KINDS[kind], *key) is None:
            return
        host = self._machines[name]
        host.power_off()
        for pod in self._objects.list("Pod", fields=f"spec.nodeName={name}"):
            self._objects.delete("Pod", *store.key_of(pod), grace=0)
        if self._objects.find("Node", "", name) is not None:
            self._objects.delete("Node", "", name)
        self._objects.patch(KINDS[kind], *key, {"metadata": {"finalizers": None}})
        if self._objects.find(KINDS[kind], *key) is not None:
            self._objects.delete(KINDS[kind], *key)
        host.faults.clear()
        host.power_on()

    def _reboot(self, found: Object) -> None:
        sent = self._machines[found["spec"]["nodeName"]].reboot("janitor")
        stated = {"type": "SignalSent", "status": "True" if sent else "False", "reason": "Succeeded", "message": ""}
        self._state(resources.REBOOT_NODES, found, {"conditions": [stated]})

    def _reset(self, found: Object) -> None:
        host, selector = self._machines[found["spec"]["nodeName"]], found["spec"].get("selector") or {}
        named = {*selector.get("uuids", ()), *selector.get("pciBusIDs", ())}
        chosen = [gpu for gpu in host.inventory.gpus if not named or {gpu.uuid, f"{gpu.pci}.0"} & named]
        sound = [host.reset_gpu(gpu.index) for gpu in chosen]
        phase = "Succeeded" if sound and all(sound) else "Failed"
        at = store.timestamp(self._objects.now())
        self._state(resources.GPU_RESETS, found, {"phase": phase, "completionTime": at})

    def _state(self, kind: resources.Resource, found: Object, status: Object) -> None:
        if self._objects.find(kind, *store.key_of(found)) is not None:
            self._objects.patch(kind, *store.key_of(found), {"status": status})


def _node_of(found: Object) -> str:
    status = found.get("status") or {}
    return str(status.get("nodeName") or (status.get("nodeRef") or {}).get("name", ""))
