"""The verbs for PersistentVolumeClaims."""

from typing import Any

from kcover_portal.kube import errors, http, values
from kcover_portal.kube.verbs import list_watch
from kcover_portal.kube.wire import base, pvcs as wire


class PersistentVolumeClaims(list_watch.Verbs):
    """The port's verbs for claims."""

    def ensure_claim(self, spec: values.ClaimSpec) -> values.ClaimState:
        try:
            return self._connection.request(
                "POST", _path(spec.namespace), wire.ClaimObject, body=claim_manifest(spec)
            ).value()
        except errors.Conflict as error:
            if http.answer(error).reason != "AlreadyExists":
                raise
            return self.claim_state(spec.namespace, spec.name)

    def claim_state(self, namespace: str, name: str) -> values.ClaimState:
        try:
            return self._connection.request("GET", _path(namespace, name), wire.ClaimObject).value()
        except errors.NotFound:
            return values.ClaimState(exists=False)

    def delete_claim(self, namespace: str, name: str) -> None:
        try:
            self._connection.request("DELETE", _path(namespace, name), base.AnyObject)
        except errors.NotFound:
            return


def claim_manifest(spec: values.ClaimSpec) -> dict[str, Any]:
    """Returns the claim's manifest; ReadWriteMany, like Autopilot's."""
    wanted: dict[str, Any] = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": spec.size}},
    }
    if spec.storage_class:
        wanted["storageClassName"] = spec.storage_class
    labels = {"app.kubernetes.io/managed-by": values.COMPONENT, **spec.labels}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": spec.namespace, "name": spec.name, "labels": labels},
        "spec": wanted,
    }


def _path(namespace: str, *name: str) -> str:
    return list_watch.path("api", "v1", "namespaces", namespace, "persistentvolumeclaims", *name)
