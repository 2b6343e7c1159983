"""The Job controller: runs pods to completion; fails the job after ``backoffLimit`` failures or at its deadline."""

from datetime import datetime, timedelta
from typing import Any

from simulator.kubeapi import history, resources, store
from simulator.world import pods
from simulator.world.agenda import Agenda
from simulator.world.controllers import Key, PodIndex, WorkQueue

Object = dict[str, Any]

_DELAY_SECONDS = 0.02


class Jobs:
    def __init__(self, objects: store.Store, agenda: Agenda, owned: PodIndex) -> None:
        self._objects, self._agenda, self._owned = objects, agenda, owned
        self._queue = WorkQueue(agenda, self._reconcile, delay=_DELAY_SECONDS)

    def changed(self, change: history.ObjectChange) -> None:
        """Queue a job that changed, or whose pod changed."""
        if change.resource is resources.JOBS and change.kind != history.DELETED:
            self._queue.add("Job", store.key_of(change.object))
            deadline = change.object["spec"].get("activeDeadlineSeconds")
            if change.kind == history.ADDED and deadline is not None:
                key = store.key_of(change.object)
                self._agenda.after(float(deadline), lambda: self._queue.add("Job", key))
        elif (owner := pods.controller(change.object)) and pods.is_batch(owner):
            self._queue.add("Job", (change.object["metadata"]["namespace"], owner["name"]))

    def _reconcile(self, kind: str, key: Key) -> None:
        job = self._objects.find("Job", *key)
        if job is None or _finished(job):
            return
        suspended = bool(job["spec"].get("suspend"))
        status = dict(job.get("status") or {})
        if not suspended:
            status.setdefault("startTime", store.timestamp(self._objects.now()))
        owned = self._owned.of(job)
        succeeded = sum(pods.phase(pod) == "Succeeded" for pod in owned)
        failed = sum(pods.phase(pod) == "Failed" for pod in owned)
        active = [pod for pod in owned if not pods.finished(pod)]
        if end := self._end(job, succeeded=succeeded, failed=failed):
            self._finish(job, active)
            active = []
            status["conditions"] = [end]
            if end["type"] == "Complete":
                status["completionTime"] = store.timestamp(self._objects.now())
        elif suspended:
            for pod in active:
                self._objects.delete("Pod", *store.key_of(pod))
            active = []
        else:
            wanted = min(job["spec"].get("parallelism", 1), job["spec"].get("completions", 1) - succeeded)
            template = job["spec"]["template"]
            active += [
                self._objects.create("Pod", pods.from_template(template, job)) for _ in range(wanted - len(active))
            ]
        counts = {"active": len(active), "succeeded": succeeded, "failed": failed}
        status |= {name: count for name, count in counts.items() if count or name in status}
        if status != job.get("status"):
            self._objects.update("Job", {**job, "status": status})

    def _end(self, job: Object, *, succeeded: int, failed: int) -> Object | None:
        """The condition that ends the job; None while it continues."""
        spec = job["spec"]
        if succeeded >= spec.get("completions", 1):
            return self._condition("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        if failed > spec.get("backoffLimit", 6):
            return self._condition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        if self._overdue(job):
            return self._condition("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
        return None

    def _finish(self, job: Object, active: list[Object]) -> None:
        """Delete the pods that still run. Delete the job itself after its TTL, if it has one."""
        for pod in active:
            self._objects.delete("Pod", *store.key_of(pod))
        if (ttl := job["spec"].get("ttlSecondsAfterFinished")) is not None:
            key, uid = store.key_of(job), job["metadata"]["uid"]
            self._agenda.after(float(ttl), lambda: self._remove(key, uid=uid))

    def _overdue(self, job: Object) -> bool:
        deadline, started = job["spec"].get("activeDeadlineSeconds"), (job.get("status") or {}).get("startTime")
        if deadline is None or started is None:
            return False
        # The start is stored in whole seconds, rounded down.
        return self._objects.now() >= datetime.fromisoformat(started) + timedelta(seconds=deadline)

    def _condition(self, kind: str, reason: str, message: str) -> Object:
        at = store.timestamp(self._objects.now())
        return {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastProbeTime": at,
            "lastTransitionTime": at,
        }

    def _remove(self, key: Key, *, uid: str) -> None:
        job = self._objects.find("Job", *key)
        if job is not None and job["metadata"]["uid"] == uid:
            self._objects.delete("Job", *key)


def _finished(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(entry["type"] in ("Complete", "Failed") and entry["status"] == "True" for entry in conditions)
