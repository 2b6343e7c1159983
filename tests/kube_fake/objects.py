"""The store: Kubernetes objects as mappings, one resource version for all, and a history for watches."""

import copy
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kcover_portal.kube import errors

Manifest = dict[str, Any]
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry of the history. ``manifest`` is the object after the change; for DELETED, its last state."""

    version: int
    kind: str
    type: str
    manifest: Manifest


class Objects:
    """The stored objects. Manifests are never changed in place, so callers can keep them."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.clock = clock
        self._version = 1
        self._floor = 1
        self._objects: dict[Key, Manifest] = {}
        self._history: list[Change] = []

    @property
    def version(self) -> str:
        """The current resource version."""
        return str(self._version)

    def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Returns the object, or None."""
        return self._objects.get((kind, namespace, name))

    def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Returns the object. Raises ``NotFound``."""
        found = self.find(kind, namespace, name)
        if found is None:
            raise errors.NotFound(f'{kind} "{name}" not found')
        return found

    def list(self, kind: str, namespace: str | None = None) -> list[Manifest]:
        """Returns the objects of a kind, in all namespaces or one, sorted by name."""
        with self.changed:
            keys = sorted(key for key in self._objects if key[0] == kind and namespace in (None, key[1]))
            return [self._objects[key] for key in keys]

    def create(self, manifest: Manifest) -> Manifest:
        """Add an object. Raises ``Conflict`` if the name is taken, ``NotFound`` if the namespace does not exist."""
        with self.changed:
            kind, namespace, name = key = _key(manifest)
            if key in self._objects:
                raise errors.Conflict(f'{kind} "{name}" already exists')
            if namespace and self.find("Namespace", "", namespace) is None:
                raise errors.NotFound(f'namespaces "{namespace}" not found')
            new = copy.deepcopy(manifest)
            new["metadata"].setdefault("uid", str(uuid.uuid4()))
            new["metadata"].setdefault("creationTimestamp", stamp(self.clock()))
            return self._commit(key, new, "ADDED")

    def edit(self, kind: str, namespace: str, name: str, change: Callable[[Manifest], object]) -> Manifest:
        """Change a copy of an object with a function and store it."""
        with self.changed:
            new = copy.deepcopy(self.get(kind, namespace, name))
            change(new)
            return self._commit((kind, namespace, name), new, "MODIFIED")

    def merge(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Manifest:
        """Apply a merge patch. Raises ``Conflict`` if the patch names an outdated resource version."""
        with self.changed:
            old = self.get(kind, namespace, name)
            wanted = patch.get("metadata", {}).get("resourceVersion")
            if wanted is not None and wanted != old["metadata"]["resourceVersion"]:
                raise errors.Conflict(f'{kind} "{name}": the object has been modified')
            return self._commit((kind, namespace, name), _merged(old, patch), "MODIFIED")

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object."""
        with self.changed:
            self._commit((kind, namespace, name), dict(self.get(kind, namespace, name)), "DELETED")

    def remove_owned(self, uid: str) -> None:
        """Delete the objects whose owner has this uid, as the garbage collector does."""
        with self.changed:
            for key, manifest in list(self._objects.items()):
                if any(owner.get("uid") == uid for owner in manifest["metadata"].get("ownerReferences") or ()):
                    self.remove(*key)

    def compact(self) -> None:
        """Forget the history. Watches from before now raise ``Expired``."""
        with self.changed:
            self._history.clear()
            self._floor = self._version

    def watch(self, kind: str, version: str | None, *, timeout: float) -> Iterator[tuple[str, Manifest | None, str]]:
        """Yield the changes since ``version``, then those within ``timeout`` seconds, then a bookmark."""
        until = time.monotonic() + timeout
        with self.changed:
            position = self._version if version is None else int(version)
            present = self.list(kind) if version is None else []
        for manifest in present:
            yield "ADDED", manifest, manifest["metadata"]["resourceVersion"]
        while True:
            with self.changed:
                if position < self._floor:
                    raise errors.Expired(f"too old resource version: {position} ({self._floor})")
                changes = [change for change in self._history if change.version > position]
                position = self._version
                remaining = until - time.monotonic()
                if not changes and remaining > 0:
                    self.changed.wait(remaining)
                    continue
            for change in changes:
                if change.kind == kind:
                    yield change.type, change.manifest, str(change.version)
            if remaining <= 0:
                yield "BOOKMARK", None, str(position)
                return

    def _commit(self, key: Key, new: Manifest, kind: str) -> Manifest:
        if kind == "MODIFIED" and new == self._objects[key]:
            return new
        self._version += 1
        new["metadata"] = {**new["metadata"], "resourceVersion": str(self._version)}
        if kind == "DELETED":
            del self._objects[key]
        else:
            self._objects[key] = new
        self._history.append(Change(version=self._version, kind=key[0], type=kind, manifest=new))
        self.changed.notify_all()
        return new


def stamp(moment: datetime) -> str:
    """Formats a time as Kubernetes does, in whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _key(manifest: Manifest) -> Key:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def _merged(target: Any, patch: Any) -> Any:
    """Applies RFC 7386. The result shares unchanged parts with the target; neither is changed in place."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
