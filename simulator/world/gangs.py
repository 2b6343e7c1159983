"""The controllers of gangs: JobSets, which run batch Jobs, and Volcano Jobs, which obey Commands.

A deleted pod of a JobSet is created again by its Job. Volcano restarts a job as a whole: it ends every pod, waits until
all are gone, and creates them again; a job with fewer pods than ``minAvailable`` runs none.
"""

from collections.abc import Iterable
from typing import Any

from simulator.kubeapi import history, resources, store
from simulator.world import pods
from simulator.world.agenda import Agenda
from simulator.world.controllers import Key, PodIndex, WorkQueue

Object = dict[str, Any]

_DELAY_SECONDS = 0.05
_JOBSET, _VOLCANO = "JobSet", "jobs.batch.volcano.sh"
_JOBSET_NAME, _VOLCANO_NAME = "jobset.sigs.k8s.io/jobset-name", "volcano.sh/job-name"
_TARGETS = {"RestartJob": "Restarting", "AbortJob": "Aborted", "ResumeJob": "Pending"}


class Gangs:
    def __init__(self, objects: store.Store, agenda: Agenda, owned: PodIndex) -> None:
        self._objects, self._owned = objects, owned
        self._queue = WorkQueue(agenda, self._reconcile, delay=_DELAY_SECONDS)

    def changed(self, change: history.ObjectChange) -> None:
        """Queue a gang that changed, or whose pod or Job changed; obey a new Command."""
        if change.resource is resources.COMMANDS and change.kind == history.ADDED:
            self._obey(change.object)
        elif change.resource.key in (_VOLCANO, resources.find(_JOBSET).key) and change.kind != history.DELETED:
            self._queue.add(change.resource.key, store.key_of(change.object))
        elif (owner := pods.controller(change.object)) and (key := _of_owner(owner)):
            self._queue.add(key, (change.object["metadata"]["namespace"], owner["name"]))

    def _reconcile(self, kind: str, key: Key) -> None:
        gang = self._objects.find(kind, *key)
        if gang is None:
            return
        if kind == _VOLCANO:
            self._volcano(gang)
        else:
            self._job_set(gang)

    def _job_set(self, job_set: Object) -> None:
        """One batch Job for each replica of each replicated job; a child follows the suspension of the whole."""
        namespace, name = store.key_of(job_set)
        suspended = bool(job_set["spec"].get("suspend"))
        for replicated in job_set["spec"].get("replicatedJobs") or ():
            for index in range(replicated.get("replicas", 1)):
                child = f"{name}-{replicated['name']}-{index}"
                found = self._objects.find("Job", namespace, child)
                if found is None:
                    self._objects.create("Job", _child(job_set, replicated, child, suspended=suspended))
                elif bool(found["spec"].get("suspend")) != suspended:
                    self._objects.patch("Job", namespace, child, {"spec": {"suspend": suspended}})

    def _obey(self, command: Object) -> None:
        """Take a Command: delete it, and set the phase of its job."""
        namespace, name = store.key_of(command)
        self._objects.delete(resources.COMMANDS, namespace, name)
        phase = _TARGETS.get(command.get("action", ""))
        job = self._objects.find(_VOLCANO, namespace, (command.get("target") or {}).get("name", ""))
        if job is not None and phase is not None and job["metadata"]["uid"] == command["target"].get("uid"):
            self._report(job, phase=phase, retries=int(phase == "Restarting"))

    def _volcano(self, job: Object) -> None:
        owned = {pod["metadata"]["name"]: pod for pod in self._owned.of(job)}
        phase = ((job.get("status") or {}).get("state") or {}).get("phase", "Pending")
        if phase in ("Restarting", "Aborted"):
            for pod in owned.values():
                if not pods.deleting(pod):
                    self._objects.delete("Pod", *store.key_of(pod))
            if phase == "Restarting" and not owned:
                self._report(job, phase="Pending")
            return
        for task, index, template in _tasks(job):
            name = f"{job['metadata']['name']}-{task}-{index}"
            if name not in owned and self._objects.find("Pod", job["metadata"]["namespace"], name) is None:
                labels = {_VOLCANO_NAME: job["metadata"]["name"], "volcano.sh/task-spec": task}
                self._objects.create("Pod", pods.from_template(template, job, name=name, labels=labels))
        running = sum(pods.phase(pod) == "Running" and not pods.deleting(pod) for pod in owned.values())
        enough = running >= job["spec"].get("minAvailable", 1)
        self._report(job, phase="Running" if enough else "Pending", running=running)

    def _report(self, job: Object, *, phase: str, running: int = 0, retries: int = 0) -> None:
        old = job.get("status") or {}
        counted = {"retryCount": old.get("retryCount", 0) + retries, "running": running}
        new = {**old, "state": {"phase": phase}, **counted}
        if new != old:
            self._objects.update(_VOLCANO, {**job, "status": new})


def _of_owner(owner: Object) -> str:
    """The key of the kind of a controller, "" if it is no gang."""
    if owner["kind"] == _JOBSET:
        return resources.find(_JOBSET).key
    return _VOLCANO if (owner["kind"], owner["apiVersion"]) == ("Job", "batch.volcano.sh/v1alpha1") else ""


def _child(job_set: Object, replicated: Object, name: str, *, suspended: bool) -> Object:
    labels = {_JOBSET_NAME: job_set["metadata"]["name"]}
    spec = replicated["template"]["spec"]
    inner = spec["template"].get("metadata") or {}
    marked = {**labels, "batch.kubernetes.io/job-name": name, "job-name": name}
    template = {**spec["template"], "metadata": {**inner, "labels": {**(inner.get("labels") or {}), **marked}}}
    made = pods.from_template({"metadata": {}, "spec": {}}, job_set, name=name, labels=labels)
    return {"metadata": made["metadata"], "spec": {**spec, "suspend": suspended, "template": template}}


def _tasks(job: Object) -> Iterable[tuple[str, int, Object]]:
    for task in job["spec"].get("tasks") or ():
        for index in range(task.get("replicas", 1)):
            yield task["name"], index, task["template"]
