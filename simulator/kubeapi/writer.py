"""Writes of requests: admission, defaults, validation, patches, subresources, dry runs.

The world writes to the store directly; requests over HTTP come through here.
"""

from collections.abc import Mapping
from typing import Any

from simulator.kubeapi import (
    budgets,
    defaults,
    errors,
    eviction,
    garbage,
    patches,
    paths,
    resources,
    selectors,
    store,
    strategic_merge,
    validation,
    versions,
)

Object = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_POLICY_VERSIONS = ("policy/v1", "policy/v1beta1")


class Writer:
    """All writes to one store on behalf of requests. Every error is an ``ApiError``."""

    def __init__(self, objects: store.Store, guard: budgets.Budgets, collector: garbage.Collector) -> None:
        self._store = objects
        self._guard = guard
        self._collector = collector

    def create(self, target: paths.Target, body: Object, *, dry_run: bool) -> Object:
        resource = target.resource
        obj = self._admitted(target, body)
        metadata = obj["metadata"]
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                cause = errors.FieldError(
                    field="metadata.name",
                    reason="FieldValueRequired",
                    message="Required value: name or generateName is required",
                )
                raise errors.invalid(resource.group, resource.kind, "", [cause])
            metadata["name"] = store.generated_name(metadata["generateName"])
        if resource.namespaced and self._store.find("Namespace", "", metadata["namespace"]) is None:
            raise errors.not_found("", "namespaces", metadata["namespace"])
        metadata["uid"] = store.new_uid()
        obj = defaults.fill(resource.kind, obj, uid=metadata["uid"]) if resource.typed else obj
        validation.check(resource, obj, group=target.group)
        return self._store.create(resource, obj, dry_run=dry_run)

    def replace(self, target: paths.Target, body: Object, *, dry_run: bool) -> Object:
        """PUT of an object or its status."""
        obj = self._admitted(target, body)
        resource = target.resource
        if not resource.unconditional and not obj["metadata"].get("resourceVersion"):
            cause = errors.FieldError(
                field="metadata.resourceVersion",
                reason="FieldValueInvalid",
                message="Invalid value: 0: must be specified for an update",
            )
            raise errors.invalid(resource.group, resource.kind, target.name, [cause])
        old = self._store.get(resource, target.namespace or "", target.name)
        return self._updated(target, old, obj, dry_run=dry_run)

    def patch(self, target: paths.Target, content_type: str, patch: Any, *, dry_run: bool) -> Object:
        """PATCH of an object or its status; a resource version in the patch makes it conditional."""
        resource = target.resource
        old = self._store.get(resource, target.namespace or "", target.name)
        seen = versions.to_response(resource, target.group, target.version, old)
        if content_type == JSON_PATCH:
            changed = patches.json_patch(seen, patch)
        elif content_type == MERGE_PATCH:
            changed = patches.merge(seen, patch)
        elif content_type == STRATEGIC_PATCH and resource.typed:
            changed = strategic_merge.merge(seen, patch, kind=resource.kind)
        else:
            spoken = (JSON_PATCH, MERGE_PATCH, *((STRATEGIC_PATCH,) if resource.typed else ()))
            raise errors.unsupported_media(spoken)
        if not isinstance(changed, dict) or not isinstance(changed.get("metadata"), dict):
            raise errors.bad_request("the patched document is not an object")
        changed = {**changed, "metadata": {"name": "", **changed["metadata"]}}  # a patch must not remove the name
        return self._updated(target, old, self._admitted(target, changed), dry_run=dry_run)

    def delete(self, target: paths.Target, options: Mapping[str, Any], *, dry_run: bool) -> Object:
        """DELETE of one object: the object while it is terminating, or a ``Status`` once it is gone."""
        resource = target.resource
        namespace = target.namespace or ""
        old = self._store.get(resource, namespace, target.name)
        wanted = options.get("preconditions") or {}
        version = wanted.get("resourceVersion")
        if version and version != old["metadata"]["resourceVersion"]:
            why = (
                f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
                f"({old['metadata']['resourceVersion']}). The object might have been modified"
            )
            raise errors.conflict(resource.group, resource.kind, target.name, why)
        uid = wanted.get("uid") or ""
        if uid and uid != old["metadata"]["uid"]:
            raise errors.uid_conflict(
                resource.group, resource.kind, target.name, wanted=uid, found=old["metadata"]["uid"]
            )
        orphan = options.get("propagationPolicy") == "Orphan" or options.get("orphanDependents") is True
        if orphan and not dry_run:
            self._collector.orphan(old["metadata"]["uid"])
        grace = options.get("gracePeriodSeconds")
        last = self._store.delete(resource, namespace, target.name, grace=grace, dry_run=dry_run)
        if resource is resources.PODS or self._store.find(resource, namespace, target.name) is last:
            return last
        details = {"name": target.name, "kind": resource.plural, "uid": old["metadata"]["uid"]}
        if resource.group:
            details["group"] = resource.group
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def delete_collection(
        self, target: paths.Target, selection: selectors.Selection, options: Mapping[str, Any], *, dry_run: bool
    ) -> list[Object]:
        """DELETE of all objects that a selection matches; returns their last state."""
        entries = list(self._store.collection(target.resource).candidates(selection))
        doomed = selectors.matching((entry.obj for entry in entries), selection)
        for obj in doomed:
            namespace, name = store.key_of(obj)
            grace = options.get("gracePeriodSeconds")
            self._store.delete(target.resource, namespace, name, grace=grace, dry_run=dry_run)
        return doomed

    def evict(self, target: paths.Target, body: Object, *, dry_run: bool) -> Object:
        """POST of an Eviction, policy/v1 or v1beta1."""
        kind, version = body.get("kind") or "Eviction", body.get("apiVersion") or _POLICY_VERSIONS[0]
        if kind != "Eviction" or version not in _POLICY_VERSIONS:
            raise errors.bad_request(f'no kind "{kind}" is registered for version "{version}"')
        if (body.get("metadata") or {}).get("name") != target.name:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        options = body.get("deleteOptions") or {}
        wanted = options.get("preconditions") or {}
        eviction.evict(
            self._store,
            self._guard,
            target.namespace or "",
            target.name,
            grace=options.get("gracePeriodSeconds"),
            uid=wanted.get("uid") or "",
            version=wanted.get("resourceVersion") or "",
            dry_run=dry_run,
        )
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def bind(self, target: paths.Target, body: Object, *, dry_run: bool) -> Object:
        """POST of a Binding: binds a pod to a node, once."""
        pod = self._store.get("Pod", target.namespace or "", target.name)
        node = (body.get("target") or {}).get("name", "")
        taken = (pod.get("spec") or {}).get("nodeName")
        if taken:
            raise errors.conflict(
                "", "pods/binding", target.name, f"pod {target.name} is already assigned to node {taken!r}"
            )
        if not dry_run:
            self._store.patch("Pod", target.namespace or "", target.name, {"spec": {"nodeName": node}})
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def _admitted(self, target: paths.Target, body: Any) -> Object:
        """The body as it is stored, if its kind, version, name and namespace match the path."""
        resource = target.resource
        if not isinstance(body, dict):
            raise errors.bad_request("the body of the request is not an object")
        wanted = versions.api_version(target.group, target.version)
        if body.get("kind", resource.kind) != resource.kind or body.get("apiVersion", wanted) != wanted:
            found = f"{body.get('apiVersion')}, Kind={body.get('kind')}"
            raise errors.bad_request(
                f"the object provided is unrecognized: expected {wanted}, Kind={resource.kind}, got {found}"
            )
        metadata = body.get("metadata")
        if metadata is not None and not isinstance(metadata, dict):
            raise errors.bad_request("metadata: must be an object")
        metadata = {
            key: value for key, value in (metadata or {}).items() if key != "managedFields" and value is not None
        }
        for field in ("labels", "annotations"):
            _check_texts(resource, field, metadata.get(field))
        if resource.namespaced:
            if metadata.setdefault("namespace", target.namespace) != target.namespace:
                raise errors.bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
        else:
            metadata.pop("namespace", None)
        if target.name and metadata.setdefault("name", target.name) != target.name:
            raise errors.bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({target.name})"
            )
        return versions.from_request(resource, target.group, {**body, "metadata": metadata})

    def _updated(self, target: paths.Target, old: Object, new: Object, *, dry_run: bool) -> Object:
        """Store a replacement of the part that the path names: ``/status`` or everything else."""
        resource = target.resource
        if target.subresource == "status":
            kept = {**old, "metadata": new["metadata"] if resource.typed else _versioned(old, new)}
            new = _with_status(kept, new.get("status"))
        elif resource.has_status:
            new = _with_status(new, old.get("status"))
        validation.check(resource, new, group=target.group, old=old)
        return self._store.update(resource, new, dry_run=dry_run)


def _check_texts(resource: resources.Resource, field: str, values: Any) -> None:
    """Labels and annotations must map text to text; a number makes the body malformed (400), not invalid (422)."""
    if values is None:
        return
    invalid = values
    if isinstance(values, dict):
        invalid = next((value for value in values.values() if not isinstance(value, str)), None)
        if invalid is None:
            return
    found = {bool: "bool", int: "number", float: "number", dict: "object", list: "array", str: "string"}[type(invalid)]
    raise errors.bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: json: cannot '
        f"unmarshal {found} into Go struct field ObjectMeta.metadata.{field} of type string"
    )


def _versioned(old: Object, new: Object) -> Object:
    """Old metadata, with the precondition that the new one states."""
    stated = {key: new["metadata"][key] for key in ("uid", "resourceVersion") if key in new["metadata"]}
    return {**old["metadata"], **stated}


def _with_status(obj: Object, status: Any) -> Object:
    bare = {key: value for key, value in obj.items() if key != "status"}
    return bare if status is None else {**bare, "status": status}
