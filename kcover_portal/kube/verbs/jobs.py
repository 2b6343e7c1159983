"""The verbs for the portal's Jobs and the users' training jobs."""

from collections.abc import Mapping
from typing import Any, Final

from kcover_portal.kube import errors, http, values
from kcover_portal.kube.verbs import list_watch
from kcover_portal.kube.wire import base
from kcover_portal.kube.wire import jobs as wire

_KEEP_SECONDS: Final = 24 * 3600  # finished Jobs are kept as evidence for a day


class Jobs(list_watch.Verbs):
    """The port's verbs for Jobs and workloads."""

    def ensure_job(self, spec: values.JobSpec) -> values.JobState:
        try:
            return self._connection.request(
                "POST", _job_path(spec.namespace), wire.JobObject, body=job_manifest(spec)
            ).value()
        except errors.Conflict as error:
            if http.answer(error).reason != "AlreadyExists":
                raise
            return self.job_state(spec.namespace, spec.name)

    def job_state(self, namespace: str, name: str) -> values.JobState:
        try:
            return self._connection.request("GET", _job_path(namespace, name), wire.JobObject).value()
        except errors.NotFound:
            return values.JobState(exists=False)

    def delete_job(self, namespace: str, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        try:
            self._connection.request("DELETE", _job_path(namespace, name), base.AnyObject, body=body)
        except errors.NotFound:
            return

    def workloads(self, *, labels: Mapping[str, str]) -> list[values.Workload]:
        found = []
        for kind in values.WORKLOADS.values():
            at = list_watch.path("apis", kind.group, kind.version, kind.plural)
            try:
                items, _ = list_watch.pages(
                    self._connection, at, base.AnyObject, query={"labelSelector": list_watch.selector(labels)}
                )
            except errors.NotFound:
                continue
            found += [workload_value(kind.kind, item) for item in items]
        return found

    def workload(self, namespace: str, kind: str, name: str) -> values.Workload:
        at = _workload_path(namespace, kind, name)
        return workload_value(kind, self._connection.request("GET", at, base.AnyObject))

    def label_workload(
        self, namespace: str, kind: str, name: str, *, labels: Mapping[str, str | None]
    ) -> values.Workload:
        changed = self._connection.request(
            "PATCH",
            _workload_path(namespace, kind, name),
            base.AnyObject,
            body={"metadata": {"labels": dict(labels)}},
            content_type="application/merge-patch+json",
        )
        return workload_value(kind, changed)


def job_manifest(spec: values.JobSpec) -> dict[str, Any]:
    """Returns the Job's manifest: one pod, one try, no API credentials unless a service account is named.

    The pod bypasses the scheduler and tolerates all taints.
    """
    labels = {"app.kubernetes.io/managed-by": values.COMPONENT, **spec.labels}
    container: dict[str, Any] = {
        "name": "job",
        "image": spec.image,
        "command": list(spec.command),
        "env": [{"name": name, "value": value} for name, value in spec.env.items()],
        "securityContext": {"privileged": spec.privileged},
    }
    pod: dict[str, Any] = {
        "nodeName": spec.node,
        "restartPolicy": "Never",
        "hostPID": spec.host_pid,
        "tolerations": [{"operator": "Exists"}],
        "automountServiceAccountToken": spec.service_account is not None,
        "containers": [container],
    }
    if spec.service_account is not None:
        pod["serviceAccountName"] = spec.service_account
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": spec.namespace, "name": spec.name, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": spec.deadline_seconds,
            "ttlSecondsAfterFinished": _KEEP_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _job_path(namespace: str, *name: str) -> str:
    return list_watch.path("apis", "batch", "v1", "namespaces", namespace, "jobs", *name)


def _workload_path(namespace: str, kind: str, name: str) -> str:
    known = values.WORKLOADS.get(kind)
    if known is None:
        raise errors.NotFound(
            f"{kind} {namespace}/{name}: unknown kind of training job; known kinds: {', '.join(values.WORKLOADS)}"
        )
    return list_watch.path("apis", known.group, known.version, "namespaces", namespace, known.plural, name)


def workload_value(kind: str, found: base.AnyObject) -> values.Workload:
    """Converts a decoded object to the port's workload."""
    meta = found.metadata
    return values.Workload(kind=kind, namespace=meta.namespace, name=meta.name, uid=meta.uid, labels=meta.labels or {})
