"""The verbs for custom resources over the store in memory. Objects are stored under their kind and group."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from kcover_portal.kube import errors, values
from kcover_portal.kube.fake.calls import Recorder
from kcover_portal.kube.verbs import custom_objects as verbs
from kcover_portal.kube.wire import custom_objects as wire


class CustomObjects(Recorder):
    """Objects of custom resources."""

    def put_custom_object(
        self, kind: values.CustomKind, name: str, spec: Mapping[str, Any], *, namespace: str = ""
    ) -> None:
        """Creates an object, or replaces its spec, as ``kubectl apply`` does."""
        key = _key(kind)
        if self.objects.find(key, namespace, name) is not None:
            self.objects.edit(key, namespace, name, lambda found: _replace(found, spec))
            return
        metadata = {"name": name, "generation": 1, **({"namespace": namespace} if namespace else {})}
        self.objects.create({"kind": key, "metadata": metadata, "spec": dict(spec)})

    def remove_custom_object(self, kind: values.CustomKind, name: str, *, namespace: str = "") -> None:
        """Deletes an object."""
        self.objects.remove(_key(kind), namespace, name)

    def custom_objects(self, kind: values.CustomKind) -> list[values.CustomObject]:
        with self.call("custom_objects", kind.kind, ""):
            return [msgspec.convert(one, wire.CustomResource).value(kind) for one in self.objects.list(_key(kind))]

    def state_condition(
        self, kind: values.CustomKind, name: str, *, uid: str, condition: values.StatedCondition, at: datetime
    ) -> None:
        with self.call("state_condition", kind.kind, name) as call, self.objects.changed:
            call.wrote = True
            if self.objects.get(_key(kind), "", name)["metadata"]["uid"] != uid:
                raise errors.Conflict(f"{kind.kind} {name}: another object has this name")
            self.objects.merge(_key(kind), "", name, verbs.condition_patch(condition, uid=uid, at=at))


def _replace(found: dict[str, Any], spec: Mapping[str, Any]) -> None:
    found["spec"] = dict(spec)
    found["metadata"] = {**found["metadata"], "generation": found["metadata"]["generation"] + 1}


def _key(kind: values.CustomKind) -> str:
    return f"{kind.kind}.{kind.group}"
