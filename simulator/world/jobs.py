"""The Job controller: runs pods to their end, gives up after ``backoffLimit`` failures or at the deadline."""

from datetime import datetime, timedelta
from typing import Any

from simulator.kubeapi import history, store
from simulator.world import pods
from simulator.world.agenda import Agenda
from simulator.world.controllers import Key, Marks, Owned

Object = dict[str, Any]

_DELAY = 0.02  # seconds


class Jobs:
    """The Job controller of one cluster."""

    def __init__(self, objects: store.Store, agenda: Agenda, owned: Owned) -> None:
        self._objects, self._agenda, self._owned = objects, agenda, owned
        self._marks = Marks(agenda, self._reconcile, delay=_DELAY)

    def changed(self, change: history.Change) -> None:
        """Mark a job that changed, or whose pod did."""
        if change.resource.kind == "Job" and change.kind != history.DELETED:
            self._marks.mark("Job", store.key_of(change.object))
            deadline = change.object["spec"].get("activeDeadlineSeconds")
            if change.kind == history.ADDED and deadline is not None:
                key = store.key_of(change.object)
                self._agenda.after(float(deadline), lambda: self._marks.mark("Job", key))
        elif (owner := pods.controller(change.object)) and owner["kind"] == "Job":
            self._marks.mark("Job", (change.object["metadata"]["namespace"], owner["name"]))

    def _reconcile(self, kind: str, key: Key) -> None:
        job = self._objects.find("Job", *key)
        if job is None or _finished(job):
            return
        spec, old = job["spec"], job.get("status") or {}
        if "startTime" not in old and not spec.get("suspend"):
            old = {**old, "startTime": store.timestamp(self._objects.now())}
        mine = self._owned.of(job)
        succeeded = sum(pods.phase(pod) == "Succeeded" for pod in mine)
        failed = sum(pods.phase(pod) == "Failed" for pod in mine)
        active = [pod for pod in mine if not pods.finished(pod)]
        conditions: list[Object] = []
        if succeeded >= spec.get("completions", 1):
            conditions = [
                self._condition("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
            ]
            old = {**old, "completionTime": store.timestamp(self._objects.now())}
        elif failed > spec.get("backoffLimit", 6):
            text = "Job has reached the specified backoff limit"
            conditions = [self._condition("Failed", "BackoffLimitExceeded", text)]
        elif self._overdue(job):
            text = "Job was active longer than specified deadline"
            conditions = [self._condition("Failed", "DeadlineExceeded", text)]
        if conditions:
            for pod in active:
                self._objects.delete("Pod", *store.key_of(pod))
            active = []
            if (ttl := spec.get("ttlSecondsAfterFinished")) is not None:
                self._agenda.after(float(ttl), lambda: self._remove(key, uid=job["metadata"]["uid"]))
        elif not active and not spec.get("suspend"):
            pod = self._objects.create("Pod", pods.from_template(spec["template"], job))
            active = [pod]
        counts = {"active": len(active), "succeeded": succeeded, "failed": failed}
        status = {**old, **{name: count for name, count in counts.items() if count or name in old}}
        if conditions:
            status["conditions"] = conditions
        if status != job.get("status"):
            self._objects.update("Job", {**job, "status": status})

    def _overdue(self, job: Object) -> bool:
        deadline, started = job["spec"].get("activeDeadlineSeconds"), (job.get("status") or {}).get("startTime")
        if deadline is None or started is None:
            return False
        # The start is kept in whole seconds, so a deadline is never early by it.
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
