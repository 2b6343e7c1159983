"""The verbs for Leases."""

from collections.abc import Mapping
from typing import Any, Final

from kcover_portal.kube import errors, values
from kcover_portal.kube.verbs import list_watch
from kcover_portal.kube.wire import base, leases as wire

MICRO_TIME: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


class Leases(list_watch.Verbs):
    """The port's verbs for Leases."""

    def lease_annotations(self, namespace: str, name: str) -> Mapping[str, str] | None:
        try:
            found = self._connection.request("GET", _path(namespace, name), wire.LeaseObject)
        except errors.NotFound:
            return None
        return found.metadata.annotations or {}

    def keep_lease(self, draft: values.LeaseDraft) -> None:
        body = lease_manifest(draft)
        try:
            self._connection.request(
                "PATCH",
                _path(draft.namespace, draft.name),
                base.AnyObject,
                body=body,
                content_type="application/merge-patch+json",
            )
        except errors.NotFound:
            self._connection.request("POST", _path(draft.namespace), base.AnyObject, body=body)

    def lease_holder(self, namespace: str, name: str) -> values.LeaseHolder | None:
        try:
            return self._connection.request("GET", _path(namespace, name), wire.LeaseObject).holder()
        except errors.NotFound:
            return None

    def claim_lease(self, claim: values.LeaseClaim) -> None:
        body = claim_manifest(claim)
        if not claim.version:
            self._connection.request("POST", _path(claim.namespace), base.AnyObject, body=body)
            return
        self._connection.request(
            "PATCH",
            _path(claim.namespace, claim.name),
            base.AnyObject,
            body=body,
            content_type="application/merge-patch+json",
        )


def claim_manifest(claim: values.LeaseClaim) -> dict[str, Any]:
    """Returns the Lease's manifest, or a merge patch that the server refuses if the Lease has another version."""
    spec: dict[str, Any] = {
        "holderIdentity": claim.holder,
        "leaseDurationSeconds": claim.seconds,
        "leaseTransitions": claim.transitions,
        "renewTime": claim.at.strftime(MICRO_TIME),
    }
    if claim.acquired is not None:
        spec["acquireTime"] = claim.acquired.strftime(MICRO_TIME)
    metadata = {"namespace": claim.namespace, "name": claim.name}
    if claim.version:
        metadata["resourceVersion"] = claim.version
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def lease_manifest(draft: values.LeaseDraft) -> dict[str, Any]:
    """Returns the Lease's manifest, which is a merge patch of it, too."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "namespace": draft.namespace,
            "name": draft.name,
            "labels": {"app.kubernetes.io/managed-by": values.COMPONENT},
            "annotations": dict(draft.annotations),
        },
        "spec": {"holderIdentity": draft.holder, "renewTime": draft.at.strftime(MICRO_TIME)},
    }


def _path(namespace: str, *name: str) -> str:
    return list_watch.path("apis", "coordination.k8s.io", "v1", "namespaces", namespace, "leases", *name)
