"""The verbs for the portal's own Jobs."""

from typing import Any, Final

from kcover_portal.kube import errors, http, values
from kcover_portal.kube.verbs import list_watch
from kcover_portal.kube.wire import base, jobs as wire

_KEEP_SECONDS: Final = 24 * 3600  # finished Jobs are kept as evidence for a day


class Jobs(list_watch.Verbs):
    """The port's verbs for Jobs."""

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
    if spec.resources:
        container["resources"] = {"limits": {name: str(count) for name, count in spec.resources.items()}}
    pod: dict[str, Any] = {
        "nodeName": spec.node,
        "restartPolicy": "Never",
        "hostPID": spec.host_pid,
        "tolerations": [{"operator": "Exists"}],
        "automountServiceAccountToken": spec.service_account is not None,
        "containers": [container],
    }
    if spec.host_network:
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if spec.unless_labelled:
        absent = [{"key": label, "operator": "DoesNotExist"} for label in spec.unless_labelled]
        required = {"nodeSelectorTerms": [{"matchExpressions": absent}]}
        pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
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
