"""The controllers that create pods: ReplicaSets and their Deployments, DaemonSets, PyTorchJobs.

Each works like its original: a change of an owner, or of one of its pods, puts the owner into a queue; a moment later
the controller compares the actual state with the desired one.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from simulator.kubeapi import errors, history, store
from simulator.world import pods, workloads
from simulator.world.agenda import Agenda

log = logging.getLogger(__name__)

Object = dict[str, Any]
Key = tuple[str, str]

_DELAY_SECONDS = 0.1  # reconciling a DaemonSet visits every node


class PodIndex:
    """The pods of each owner, by the owner's uid."""

    def __init__(self, objects: store.Store) -> None:
        self._objects = objects
        self._pods: dict[str, dict[Key, None]] = {}

    def pod_changed(self, change: history.ObjectChange) -> None:
        owner = pods.controller(change.object)
        if owner is None:
            return
        key = store.key_of(change.object)
        if change.kind == history.DELETED:
            found = self._pods.get(owner["uid"], {})
            found.pop(key, None)
            if not found:
                self._pods.pop(owner["uid"], None)
        else:
            self._pods.setdefault(owner["uid"], {})[key] = None

    def of(self, owner: Object) -> list[Object]:
        """An owner's pods in the order of their creation."""
        keys = list(self._pods.get(owner["metadata"]["uid"], ()))
        return [pod for key in keys if (pod := self._objects.find("Pod", *key)) is not None]


class WorkQueue:
    """Owners to reconcile, each at most once however often it is added."""

    def __init__(self, agenda: Agenda, look: Callable[[str, Key], None], *, delay: float) -> None:
        self._agenda, self._look, self._delay = agenda, look, delay
        self._marked: set[tuple[str, Key]] = set()

    def add(self, kind: str, key: Key) -> None:
        """Reconcile an owner after ``delay`` seconds, so that a burst of changes is handled at once."""
        if (kind, key) in self._marked:
            return
        self._marked.add((kind, key))

        def act() -> None:
            self._marked.discard((kind, key))
            try:
                self._look(kind, key)
            except errors.ApiError as error:  # a generated name was taken: retry, as a work queue does
                log.debug("%s %s/%s: %s", kind, *key, error)
                self.add(kind, key)

        self._agenda.after(self._delay, act)


class Controllers:
    def __init__(self, objects: store.Store, agenda: Agenda, owned: PodIndex) -> None:
        self._objects, self._owned = objects, owned
        self._queue = WorkQueue(agenda, self._reconcile, delay=_DELAY_SECONDS)
        self._verbs: dict[str, Callable[[Object], None]] = {
            "Deployment": self._deployment,
            "ReplicaSet": self._replica_set,
            "DaemonSet": self._daemon_set,
            "PyTorchJob": self._pytorch_job,
        }

    def changed(self, change: history.ObjectChange) -> None:
        """Queue the owners that a change concerns: the object itself, a pod's owner, every DaemonSet for a new node."""
        kind = change.resource.kind
        if kind in self._verbs and change.kind != history.DELETED:
            self._queue.add(kind, store.key_of(change.object))
        if kind == "Node" and change.kind == history.ADDED:
            for daemon_set in self._objects.list("DaemonSet"):
                self._queue.add("DaemonSet", store.key_of(daemon_set))
        if (owner := pods.controller(change.object)) and owner["kind"] in self._verbs:
            self._queue.add(owner["kind"], (change.object["metadata"].get("namespace", ""), owner["name"]))

    def _reconcile(self, kind: str, key: Key) -> None:
        owner = self._objects.find(kind, *key)
        if owner is not None and "deletionTimestamp" not in owner["metadata"]:
            self._verbs[kind](owner)

    def _deployment(self, deployment: Object) -> None:
        """One ReplicaSet for each Deployment: scaled with it, never rolled."""
        metadata, spec = deployment["metadata"], deployment["spec"]
        name = f"{metadata['name']}-{_hash(metadata['uid'])}"
        wanted = spec.get("replicas", 1)
        replica_set = self._objects.find("ReplicaSet", metadata["namespace"], name)
        if replica_set is None:
            created = pods.from_template(spec["template"], deployment, name=name)
            inner = {"replicas": wanted, "selector": spec["selector"], "template": spec["template"]}
            self._objects.create("ReplicaSet", {"metadata": created["metadata"], "spec": inner})
            return
        if replica_set["spec"].get("replicas") != wanted:
            replica_set = self._objects.patch("ReplicaSet", metadata["namespace"], name, {"spec": {"replicas": wanted}})
        status = {key: (replica_set.get("status") or {}).get(key, 0) for key in ("replicas", "readyReplicas")}
        self._report(deployment, {**status, "updatedReplicas": status["replicas"]})

    def _replica_set(self, replica_set: Object) -> None:
        wanted = replica_set["spec"].get("replicas", 1)
        active = [pod for pod in self._owned.of(replica_set) if not (pods.deleting(pod) or pods.finished(pod))]
        for _ in range(wanted - len(active)):
            self._objects.create("Pod", pods.from_template(replica_set["spec"]["template"], replica_set))
        for pod in sorted(active, key=pods.ready)[: max(len(active) - wanted, 0)]:
            self._objects.delete("Pod", *store.key_of(pod))
        self._report(replica_set, {"replicas": len(active), "readyReplicas": sum(map(pods.ready, active))})

    def _daemon_set(self, daemon_set: Object) -> None:
        """A pod on each node that the selector matches, whatever its taints."""
        template = daemon_set["spec"]["template"]
        selector = template["spec"].get("nodeSelector") or {}
        owned = self._owned.of(daemon_set)
        have = {pods.node_of(pod) for pod in owned}
        nodes = [
            entry.obj["metadata"]["name"]
            for entry in self._objects.collection("Node").ordered()
            if selector.items() <= (entry.obj["metadata"].get("labels") or {}).items()
        ]
        for name in nodes:
            if name not in have:
                pod = pods.from_template(template, daemon_set)
                self._objects.create("Pod", pods.bound(pod, name))
        self._report(
            daemon_set,
            {
                "desiredNumberScheduled": len(nodes),
                "currentNumberScheduled": len(owned),
                "numberReady": sum(map(pods.ready, owned)),
            },
        )

    def _pytorch_job(self, job: Object) -> None:
        """Pods with fixed names. A pod that is gone or has failed is created again under the same name.

        A suspended job has none.
        """
        owned = {pod["metadata"]["name"]: pod for pod in self._owned.of(job)}
        suspended = bool((job["spec"].get("runPolicy") or {}).get("suspend"))
        for unwanted in owned.values() if suspended else ():
            if not pods.deleting(unwanted):
                self._objects.delete("Pod", *store.key_of(unwanted))
        for role, index, replica in () if suspended else _replicas(job):
            name = f"{job['metadata']['name']}-{role}-{index}"
            pod = owned.get(name)
            if pod is None:
                labels = {
                    workloads.JOB_NAME: job["metadata"]["name"],
                    "training.kubeflow.org/replica-type": role,
                    "training.kubeflow.org/replica-index": str(index),
                    "training.kubeflow.org/operator-name": "pytorchjob-controller",
                }
                template = {
                    **replica["template"],
                    "spec": {**replica["template"]["spec"], "restartPolicy": replica.get("restartPolicy", "OnFailure")},
                }
                if self._objects.find("Pod", job["metadata"]["namespace"], name) is None:
                    self._objects.create("Pod", pods.from_template(template, job, name=name, labels=labels))
            elif pods.phase(pod) == "Failed" and replica.get("restartPolicy") != "Never" and not pods.deleting(pod):
                self._objects.delete("Pod", *store.key_of(pod))
        active = sum(pods.phase(pod) == "Running" for pod in owned.values())
        running = bool(owned) and active == len(owned)
        condition = {"type": "Running", "status": "True" if running else "False", "reason": "PyTorchJobRunning"}
        self._report(job, {"replicaStatuses": {"Worker": {"active": active}}, "conditions": [condition]})

    def _report(self, owner: Object, status: Object) -> None:
        new = {**(owner.get("status") or {}), **status}
        if new != owner.get("status"):
            self._objects.update(owner["kind"], {**owner, "status": new})


def _replicas(job: Object) -> Iterable[tuple[str, int, Object]]:
    for role, replica in (job["spec"].get("pytorchReplicaSpecs") or {}).items():
        for index in range(replica.get("replicas", 1)):
            yield role.lower(), index, replica


def _hash(uid: str) -> str:
    return uid.replace("-", "")[:10]
