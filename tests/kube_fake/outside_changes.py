"""Changes to a fake cluster that others make: kubelet, controllers, kubectl."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from kcover_portal.kube import values
from kcover_portal.kube.wire import nodes, pods
from tests.kube_fake.objects import Manifest, Objects, stamp

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


class OutsideChanges:
    """The actions of others. ``clock`` is the cluster's time; tests may change ``objects`` directly."""

    def __init__(self, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.objects = Objects(clock)
        self.logs: dict[
            tuple[str, bool], list[tuple[datetime, str]]
        ] = {}  # by a pod's uid, and whether of its past run
        for name in ("default", "kube-system"):
            self.add_namespace(name)

    # Creation

    def create(self, manifest: Manifest) -> Manifest:
        """Creates any object like ``kubectl create``, including its status."""
        created = self.objects.create(manifest)
        self._settle_budgets()
        return created

    def add_namespace(self, name: str) -> None:
        """Creates a namespace unless it exists."""
        if self.objects.find("Namespace", "", name) is None:
            self.objects.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def add_node(
        self,
        name: str,
        *,
        gpus: int = 8,
        labels: Mapping[str, str] = values.NOTHING,
        annotations: Mapping[str, str] = values.NOTHING,
        taints: Iterable[values.Taint] = (),
        unschedulable: bool = False,
        ready: bool = True,
        boot_id: str | None = None,
        internal_ip: str = "",
        addresses: Iterable[tuple[str, str]] = (),
        system_uuid: str = "",
        provider_id: str = "",
    ) -> values.Node:
        """Creates a GPU node; the boot id is random unless given, and the machine's UUID is made from the name."""
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        manifest = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": dict(labels), "annotations": dict(annotations)},
            "spec": {
                **({"unschedulable": True} if unschedulable else {}),
                **({"providerID": provider_id} if provider_id else {}),
                "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in taints],
            },
            "status": {
                "capacity": {"nvidia.com/gpu": str(gpus)},
                "conditions": [{**condition, "lastTransitionTime": stamp(self.objects.clock())}],
                "addresses": [
                    *([{"type": "InternalIP", "address": internal_ip}] if internal_ip else []),
                    *({"type": kind, "address": address} for kind, address in addresses),
                ],
                "nodeInfo": {
                    "bootID": boot_id or str(uuid.uuid4()),
                    "kubeletVersion": "v1.31.0",
                    "systemUUID": system_uuid or str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
                },
            },
        }
        return msgspec.convert(self.create(manifest), nodes.NodeObject).value()

    def add_pod(
        self,
        namespace: str,
        name: str,
        *,
        node: str = "",
        owner_kind: str = "",
        owner_name: str = "",
        labels: Mapping[str, str] = values.NOTHING,
        phase: str = "Running",
        ready: bool = True,
        mirror: bool = False,
        gpus: int = 0,
        restart_policy: str = "Always",
    ) -> values.Pod:
        """Creates a pod, and its namespace if missing. The pod is bare unless ``owner_kind`` is given.

        The owner is the training job of this kind and name, if there is one, otherwise something unknown.
        """
        self.add_namespace(namespace)
        owner = self._owner(namespace, owner_kind, owner_name or name)
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": namespace,
                "name": name,
                "labels": dict(labels),
                "annotations": {pods.MIRROR: "x"} if mirror else {},
                "ownerReferences": [owner] if owner_kind else [],
            },
            "spec": {
                "nodeName": node,
                "restartPolicy": restart_policy,
                "containers": [
                    {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}}}
                ],
            },
            "status": {
                "phase": phase,
                "conditions": [{"type": "Ready", "status": "True" if ready and phase == "Running" else "False"}],
            },
        }
        return msgspec.convert(self.create(manifest), pods.PodObject).value()

    def _owner(self, namespace: str, kind: str, name: str) -> dict[str, Any]:
        found = {"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": True, "uid": str(uuid.uuid4())}
        for known in values.WORKLOADS.values():
            owner = self.objects.find(known.kind, namespace, name) if known.api_kind == kind else None
            if owner is not None:
                found |= {"apiVersion": f"{known.group}/{known.version}", "uid": owner["metadata"]["uid"]}
        return found

    def add_budget(
        self,
        namespace: str,
        name: str,
        *,
        match: Mapping[str, str],
        min_available: int | None = None,
        disruptions_allowed: int = 0,
    ) -> None:
        """Creates a PodDisruptionBudget.

        With ``min_available`` the allowed disruptions follow the pods; otherwise each eviction decrements them.
        """
        self.add_namespace(namespace)
        minimum: dict[str, Any] = {} if min_available is None else {"minAvailable": min_available}
        self.create(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"namespace": namespace, "name": name},
                "spec": {"selector": {"matchLabels": dict(match)}, **minimum},
                "status": {"disruptionsAllowed": disruptions_allowed},
            }
        )

    def add_workload(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        labels: Mapping[str, str] = values.NOTHING,
        owner: tuple[str, str] = ("", ""),
        spec: Mapping[str, Any] = values.NOTHING,
    ) -> None:
        """Creates a training job of a kind in ``values.WORKLOADS``. ``owner``: kind and name of its controller."""
        self.add_namespace(namespace)
        known = values.WORKLOADS[kind]
        metadata: dict[str, Any] = {"namespace": namespace, "name": name, "labels": dict(labels)}
        if owner[0]:
            metadata["ownerReferences"] = [self._owner(namespace, *owner)]
        more = {"spec": dict(spec)} if spec else {}
        self.create({"apiVersion": f"{known.group}/{known.version}", "kind": kind, "metadata": metadata, **more})

    # kubectl

    def cordon(self, node: str) -> None:
        """Like ``kubectl cordon``."""
        self.objects.edit("Node", "", node, lambda m: m["spec"].update(unschedulable=True))

    def uncordon(self, node: str) -> None:
        """Like ``kubectl uncordon``."""
        self.objects.edit("Node", "", node, lambda m: m["spec"].pop("unschedulable", None))

    def label_node(self, node: str, labels: Mapping[str, str | None]) -> None:
        """Like ``kubectl label``; None removes a label."""
        self.objects.merge("Node", "", node, {"metadata": {"labels": dict(labels)}})

    def delete_node(self, node: str) -> None:
        """Like ``kubectl delete node``. What the node owns goes, too. Its pods stay for a while."""
        uid = self.objects.get("Node", "", node)["metadata"]["uid"]
        self.objects.remove("Node", "", node)
        self.objects.remove_owned(uid)

    # kubelet and controllers

    def finish_deletions(self, *, node: str | None = None) -> list[str]:
        """Removes all terminating pods (on that node) and returns their names.

        A silent kubelet ends none. With the taint ``out-of-service`` the cluster removes all pods of such a node.
        """
        silent = self._silent_nodes()
        leaving = [
            pod
            for pod in self.objects.list("Pod")
            if silent.get(pod["spec"].get("nodeName"), "deletionTimestamp" in pod["metadata"])
            and node in (None, pod["spec"].get("nodeName"))
        ]
        for pod in leaving:
            self.remove_pod(pod["metadata"]["namespace"], pod["metadata"]["name"])
        return [pod["metadata"]["name"] for pod in leaving]

    def _silent_nodes(self) -> dict[str, bool]:
        """The nodes whose kubelet is silent, and whether each has the taint ``out-of-service``."""
        found = [msgspec.convert(manifest, nodes.NodeObject).value() for manifest in self.objects.list("Node")]
        return {
            node.name: any(taint.key == OUT_OF_SERVICE for taint in node.taints)
            for node in found
            if node.conditions.get("Ready") == "Unknown"
        }

    def remove_pod(self, namespace: str, name: str) -> None:
        """Removes a pod at once."""
        self.objects.remove("Pod", namespace, name)
        self._settle_budgets()

    def replace_pod(self, namespace: str, name: str) -> values.Pod:
        """Recreates a pod under the same name with another uid, as a StatefulSet does."""
        with self.objects.changed:
            old = self.objects.get("Pod", namespace, name)
            self.objects.remove("Pod", namespace, name)
            forgotten = ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
            metadata = {key: value for key, value in old["metadata"].items() if key not in forgotten}
            return msgspec.convert(self.create({**old, "metadata": metadata}), pods.PodObject).value()

    def fail_container(self, namespace: str, name: str, *, exit_code: int = 1, message: str = "") -> None:
        """Terminates the pod's container with an error."""
        end = {"reason": "Error", "exitCode": exit_code, "message": message, "finishedAt": stamp(self.objects.clock())}
        status = {"containerStatuses": [{"name": "main", "state": {"terminated": end}}]}
        self.objects.edit("Pod", namespace, name, lambda m: m["status"].update(status))

    def write_log(self, namespace: str, name: str, line: str, *, at: datetime, previous: bool = False) -> None:
        """The container ``main`` of a pod writes a line; ``previous``: in its run before the last restart."""
        uid = self.objects.get("Pod", namespace, name)["metadata"]["uid"]
        self.logs.setdefault((uid, previous), []).append((at, line))

    def bind_claim(self, namespace: str, name: str) -> None:
        self.objects.merge("PersistentVolumeClaim", namespace, name, {"status": {"phase": "Bound"}})

    def set_ready(self, node: str, ready: bool) -> None:
        """Sets the node's Ready condition."""
        condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
        entry = {**condition, "lastTransitionTime": stamp(self.objects.clock())}

        def turn(manifest: Manifest) -> None:
            others = [c for c in manifest["status"]["conditions"] if c["type"] != "Ready"]
            manifest["status"]["conditions"] = [*others, entry]

        self.objects.edit("Node", "", node, turn)

    def reboot(self, node: str, *, boot_id: str | None = None) -> str:
        """The node went down and came up: NotReady, a new boot id, Ready again; returns the boot id."""
        new = boot_id or str(uuid.uuid4())
        self.set_ready(node, False)
        self.objects.edit("Node", "", node, lambda m: m["status"]["nodeInfo"].update(bootID=new))
        self.set_ready(node, True)
        return new

    def finish_job(
        self, namespace: str, name: str, *, succeeded: bool = True, reason: str = "BackoffLimitExceeded"
    ) -> None:
        """The Job controller's verdict."""
        condition = {"type": "Complete" if succeeded else "Failed", "status": "True"}
        status: dict[str, Any] = {"succeeded": 1} if succeeded else {"failed": 1}
        status["conditions"] = [condition if succeeded else {**condition, "reason": reason}]
        self.objects.edit("Job", namespace, name, lambda m: m.update(status=status))

    def _settle_budgets(self) -> None:
        """The disruption controller: what budgets with a minimum allow, given the pods that are healthy now."""
        with self.objects.changed:
            found = [msgspec.convert(m, pods.PodObject).value() for m in self.objects.list("Pod")]
            for manifest in self.objects.list("PodDisruptionBudget"):
                minimum = manifest["spec"].get("minAvailable")
                if minimum is None:
                    continue
                budget = msgspec.convert(manifest, pods.BudgetObject).value()
                healthy = sum(1 for pod in found if budget.covers(pod) and pod.ready and not pod.deleting)
                status = {"disruptionsAllowed": max(0, healthy - minimum)}
                if manifest.get("status") != status:
                    self.objects.merge("PodDisruptionBudget", budget.namespace, budget.name, {"status": status})
