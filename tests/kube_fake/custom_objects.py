"""The verbs for custom resources over the store in memory. Objects are stored under their kind and group."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from kcover_portal.kube import errors, values
from kcover_portal.kube.verbs import custom_objects as verbs
from kcover_portal.kube.wire import custom_objects as wire
from tests.kube_fake.calls import Recorder
from tests.kube_fake.objects import stamp


class CustomObjects(Recorder):
    """Objects of custom resources. ``served``: the kinds that the cluster says it has."""

    def __init__(self, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        super().__init__(clock=clock)
        self.served: set[values.CustomKind] = set()

    def put_custom_object(
        self,
        kind: values.CustomKind,
        name: str,
        spec: Mapping[str, Any],
        *,
        namespace: str = "",
        status: Mapping[str, Any] = values.NOTHING,
        owner: str = "",
        finalizer: bool = False,
    ) -> None:
        """Creates an object, or replaces its spec, as ``kubectl apply`` does.

        ``owner``: the kind of its controller. ``finalizer``: a deletion waits for ``remove_custom_object``.
        """
        key = _key(kind)
        if self.objects.find(key, namespace, name) is not None:
            self.objects.edit(key, namespace, name, lambda found: _replace(found, spec))
            return
        metadata: dict[str, Any] = {"name": name, "generation": 1, **({"namespace": namespace} if namespace else {})}
        if owner:
            metadata["ownerReferences"] = [{"kind": owner, "name": owner.lower(), "controller": True}]
        if finalizer:
            metadata["finalizers"] = [f"{kind.group}/test"]
        self.objects.create({"kind": key, "metadata": metadata, "spec": dict(spec), "status": dict(status)})

    def remove_custom_object(self, kind: values.CustomKind, name: str, *, namespace: str = "") -> None:
        self.objects.remove(_key(kind), namespace, name)

    def serves(self, kind: values.CustomKind) -> bool:
        with self.call("serves", kind.kind, kind.version):
            return kind in self.served

    def custom_objects(
        self, kind: values.CustomKind, *, node: str = "", namespace: str = ""
    ) -> list[values.CustomObject]:
        with self.call("custom_objects", kind.kind, node, namespace=namespace):
            found = [
                one
                for one in self.objects.list(_key(kind))
                if not node or one["spec"].get("nodeName") == node
                if namespace in ("", one["metadata"].get("namespace"))
            ]
            return [_value(kind, one) for one in found]

    def create_object(
        self, kind: values.CustomKind, name: str, spec: Mapping[str, Any], *, owner: values.Node | None = None
    ) -> values.CustomObject:
        with self.call("create_object", kind.kind, name) as call, self.objects.changed:
            call.wrote = True
            found = self.objects.find(_key(kind), "", name)
            if found is None:
                manifest = {**verbs.object_manifest(kind, name, spec, owner=owner), "kind": _key(kind)}
                found = self.objects.create(manifest)
            return _value(kind, found)

    def delete_object(self, kind: values.CustomKind, namespace: str, name: str, *, uid: str) -> None:
        with self.call("delete_object", kind.kind, name, namespace=namespace) as call, self.objects.changed:
            call.wrote = True
            key = _key(kind)
            found = self.objects.find(key, namespace, name)
            if found is None:
                return
            if found["metadata"]["uid"] != uid:
                raise errors.Conflict(f"{kind.kind} {name}: another object has this name")
            if found["metadata"].get("finalizers"):
                at = stamp(self.objects.clock())
                self.objects.merge(key, namespace, name, {"metadata": {"deletionTimestamp": at}})
            else:
                self.objects.remove(key, namespace, name)

    def state_condition(
        self, kind: values.CustomKind, name: str, *, version: str, condition: values.StatedCondition, at: datetime
    ) -> None:
        with self.call("state_condition", kind.kind, name) as call, self.objects.changed:
            call.wrote = True
            if self.objects.get(_key(kind), "", name)["metadata"]["resourceVersion"] != version:
                raise errors.Conflict(f"{kind.kind} {name}: it was changed")
            self.objects.merge(_key(kind), "", name, verbs.condition_patch(condition, version=version, at=at))


def _value(kind: values.CustomKind, found: Mapping[str, Any]) -> values.CustomObject:
    return msgspec.json.decode(msgspec.json.encode(found), type=wire.CustomResource).value(kind)


def _replace(found: dict[str, Any], spec: Mapping[str, Any]) -> None:
    found["spec"] = dict(spec)
    found["metadata"] = {**found["metadata"], "generation": found["metadata"]["generation"] + 1}


def _key(kind: values.CustomKind) -> str:
    return f"{kind.kind}.{kind.group}"
