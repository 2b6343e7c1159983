"""The store: Kubernetes objects as mappings, one resource version for all, and the history that watches read."""

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
    """One line of the history; ``manifest`` is the object afterwards (for DELETED, as it last was)."""

    version: int
    kind: str
    type: str
    manifest: Manifest


class Objects:
    """Stored manifests are never changed in place: what was handed out stays as it was."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.clock = clock
        self._version = 1
        self._floor = 1
        self._objects: dict[Key, Manifest] = {}
        self._history: list[Change] = []

    @property
    def version(self) -> str:
        """The resource version now."""
        return str(self._version)

    def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """The object, or None."""
        return self._objects.get((kind, namespace, name))

    def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """The object. Raises ``NotFound``."""
        found = self.find(kind, namespace, name)
        if found is None:
            raise errors.NotFound(f'{kind} "{name}" not found')
        return found

    def list(self, kind: str, namespace: str | None = None) -> list[Manifest]:
        """The objects of a kind, everywhere or in a namespace, by name."""
        with self.changed:
            keys = sorted(key for key in self._objects if key[0] == kind and namespace in (None, key[1]))
            return [self._objects[key] for key in keys]

    def create(self, manifest: Manifest) -> Manifest:
        """Add an object. Raises ``Conflict`` when the name is taken, ``NotFound`` without its namespace."""
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
        """Change an object by a function that works on a copy."""
        with self.changed:
            new = copy.deepcopy(self.get(kind, namespace, name))
            change(new)
            return self._commit((kind, namespace, name), new, "MODIFIED")

    def merge(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Manifest:
        """Apply a merge patch. Raises ``Conflict`` when it names another resource version than the object's."""
        with self.changed:
            old = self.get(kind, namespace, name)
            wanted = patch.get("metadata", {}).get("resourceVersion")
            if wanted is not None and wanted != old["metadata"]["resourceVersion"]:
                raise errors.Conflict(f'{kind} "{name}": the object has been modified')
            return self._commit((kind, namespace, name), _merged(old, patch), "MODIFIED")

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Take an object away."""
        with self.changed:
            self._commit((kind, namespace, name), dict(self.get(kind, namespace, name)), "DELETED")

    def compact(self) -> None:
        """Forget the history: watches from before now are ``Expired``."""
        with self.changed:
            self._history.clear()
            self._floor = self._version

    def watch(self, kind: str, version: str | None, *, timeout: float) -> Iterator[tuple[str, Manifest | None, str]]:
        """As a watch does: what has changed since, then what changes within ``timeout`` seconds, then a bookmark."""
        until = time.monotonic() + timeout
        with self.changed:
            at = self._version if version is None else int(version)
            present = self.list(kind) if version is None else []
        for manifest in present:
            yield "ADDED", manifest, manifest["metadata"]["resourceVersion"]
        while True:
            with self.changed:
                if at < self._floor:
                    raise errors.Expired(f"too old resource version: {at} ({self._floor})")
                news = [change for change in self._history if change.version > at]
                at = self._version
                left = until - time.monotonic()
                if not news and left > 0:
                    self.changed.wait(left)
                    continue
            for change in news:
                if change.kind == kind:
                    yield change.type, change.manifest, str(change.version)
            if left <= 0:
                yield "BOOKMARK", None, str(at)
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
    """A time as Kubernetes writes it: whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _key(manifest: Manifest) -> Key:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7386. What the patch leaves alone is shared with the target: neither is ever changed in place."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
