"""The verbs for custom resources: lists, creation and deletion, and the conditions of an object's status."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kcover_portal.kube import bounds, errors, http, values
from kcover_portal.kube.verbs import list_watch
from kcover_portal.kube.wire import base, custom_objects as wire


class CustomObjects(list_watch.Verbs):
    """The port's verbs for custom resources."""

    def serves(self, kind: values.CustomKind) -> bool:
        try:
            found = self._connection.request("GET", list_watch.path("apis", kind.group, kind.version), base.Resources)
        except errors.NotFound:
            return False
        return any(resource.name == kind.plural for resource in found.resources or ())

    def custom_objects(
        self, kind: values.CustomKind, *, node: str = "", namespace: str = ""
    ) -> list[values.CustomObject]:
        query = {"fieldSelector": f"spec.nodeName={node}"} if node else None
        most, seconds = bounds.MAX_CUSTOM_BYTES, bounds.LIST_SECONDS
        if kind.by_users:
            most, seconds = bounds.MAX_BYTES_BY_USERS, bounds.SECONDS_BY_USERS
        try:
            items, _ = list_watch.pages(
                self._connection, _path(kind, namespace), wire.CustomResource, query=query, most=most, seconds=seconds
            )
        except errors.NotFound:
            return []
        return [item.value(kind) for item in items]

    def create_object(
        self, kind: values.CustomKind, name: str, spec: Mapping[str, Any], *, owner: values.Node | None = None
    ) -> values.CustomObject:
        body = object_manifest(kind, name, spec, owner=owner)
        try:
            made = self._connection.request("POST", _path(kind), wire.CustomResource, body=body)
        except errors.Conflict as error:
            if http.answer(error).reason != "AlreadyExists":
                raise
            made = self._connection.request("GET", f"{_path(kind)}{list_watch.path(name)}", wire.CustomResource)
        return made.value(kind)

    def delete_object(self, kind: values.CustomKind, namespace: str, name: str, *, uid: str) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        at = f"{_path(kind, namespace)}{list_watch.path(name)}"
        try:
            self._connection.request("DELETE", at, base.AnyObject, body=body)
        except errors.NotFound:
            return

    def state_condition(
        self, kind: values.CustomKind, name: str, *, version: str, condition: values.StatedCondition, at: datetime
    ) -> None:
        self._connection.request(
            "PATCH",
            f"{_path(kind)}{list_watch.path(name)}/status",
            base.AnyObject,
            body=condition_patch(condition, version=version, at=at),
            content_type="application/merge-patch+json",
        )


def object_manifest(
    kind: values.CustomKind, name: str, spec: Mapping[str, Any], *, owner: values.Node | None
) -> dict[str, Any]:
    """Returns the manifest of an object that the portal creates. ``owner``: it is deleted with that node."""
    metadata: dict[str, Any] = {"name": name, "labels": {values.MANAGED_BY: values.COMPONENT}}
    if owner is not None:
        node = {"apiVersion": "v1", "kind": "Node", "name": owner.name, "uid": owner.uid}
        metadata["ownerReferences"] = [node]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": dict(spec)}


def condition_patch(condition: values.StatedCondition, *, version: str, at: datetime) -> dict[str, Any]:
    """Returns the merge patch of a status with this one condition, for the object as it was at this version.

    A server ignores a uid in the patch of a custom resource's status, so the version tells objects of one name apart.
    """
    stated = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": condition.generation,
        "lastTransitionTime": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return {"metadata": {"resourceVersion": version}, "status": {"conditions": [stated]}}


def _path(kind: values.CustomKind, namespace: str = "") -> str:
    within = ("namespaces", namespace) if namespace else ()
    return list_watch.path("apis", kind.group, kind.version, *within, kind.plural)
