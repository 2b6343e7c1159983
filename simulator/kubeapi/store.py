"""The object store: plain dicts by kind, namespace and name, with one increasing resource version for all of them.

The store holds the state of the cluster. The HTTP side and the simulated world both work on it, synchronously, in the
thread of one event loop. Rules for callers:

- An object passed to ``create`` or ``update`` belongs to the store from then on, and ``get`` and ``list`` return the
  store's own objects: never change either. Change an object by ``patch``, or by ``update`` with a new dict. Objects may
  share parts (one ``images`` list for 10,000 nodes), which keeps a big cluster small.
- ``kind`` arguments take a kind's name (``"Pod"``), its plural (``"pods"``), ``(group, plural)`` or a ``Resource``.
- Every error is an ``errors.ApiError``: 404, 409, 410 …
- The store checks identity and versions, not content. Validation and admission belong to requests (``writer``); the
  world may write status and spec alike.
"""

import secrets
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from simulator.kubeapi import errors, patches, resources, selectors
from simulator.kubeapi.collection import Collection, Key
from simulator.kubeapi.history import ADDED, DELETED, MODIFIED, ObjectChange, ObjectVersion

Object = dict[str, Any]

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # as k8s.io/apimachinery/pkg/util/rand: no vowels, no words


def timestamp(moment: datetime) -> str:
    """A ``metav1.Time``: RFC 3339, whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def key_of(obj: Object) -> Key:
    """The namespace and name of an object."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def generated_name(prefix: str) -> str:
    """A name as the API server makes it from ``generateName``."""
    return prefix + "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(5))


def new_uid() -> str:
    return str(uuid.uuid4())


class Store:
    """Objects of every kind. ``now`` is the clock (aware UTC); ``history`` is the number of changes kept for each
    kind."""

    def __init__(self, *, now: Callable[[], datetime], history: int = 8192) -> None:
        self.now = now
        self._version = 1
        self._collections = {
            resource.key: Collection(resource, history=history, floor=self._version)
            for resource in resources.RESOURCES
            if resource.stored
        }
        self._subscribers: list[Callable[[ObjectChange], None]] = []
        self._undelivered: deque[ObjectChange] = deque()
        self._delivering = False

    @property
    def version(self) -> int:
        """The newest resource version."""
        return self._version

    def collection(self, kind: resources.Ref) -> Collection:
        """The objects of one kind, for readers that need entries and history."""
        return self._collections[resources.find(kind).key]

    # Reading

    def find(self, kind: resources.Ref, namespace: str, name: str) -> Object | None:
        """One object or None. ``namespace`` is ``""`` for cluster-wide kinds."""
        entry = self.collection(kind).entries.get((namespace, name))
        return entry.obj if entry else None

    def get(self, kind: resources.Ref, namespace: str, name: str) -> Object:
        """Raises ``ApiError`` 404."""
        return self._entry(self.collection(kind), (namespace, name)).obj

    def list(
        self, kind: resources.Ref, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """Objects by namespace and name; ``namespace`` None means all. Selectors as in a request (raises 400)."""
        collection = self.collection(kind)
        selection = selectors.select(kind=collection.resource.kind, namespace=namespace, labels=labels, fields=fields)
        return selectors.matching((entry.obj for entry in collection.candidates(selection)), selection)

    def count(self, kind: resources.Ref) -> int:
        """The number of objects of a kind."""
        return len(self.collection(kind).entries)

    # Writing

    def create(self, kind: resources.Ref, obj: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        """Store a new object. Fills in creation time and resource version, and uid and name if absent.

        Raises ``ApiError`` 409 (AlreadyExists).
        """
        collection = self.collection(kind)
        resource = collection.resource
        metadata = dict(obj["metadata"])
        if not metadata.get("name"):
            metadata["name"] = generated_name(metadata["generateName"])
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(field, None)
        metadata["uid"] = metadata.get("uid") or new_uid()
        metadata["creationTimestamp"] = timestamp(self.now())
        if resource.generation:
            metadata["generation"] = 1
        new = {**obj, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        key = key_of(new)
        if key in collection.entries:
            raise errors.already_exists(resource.group, resource.plural, key[1])
        return new if dry_run else self._commit(collection, key, new, ADDED)

    def update(self, kind: resources.Ref, obj: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        """Replace an object. A write that changes nothing makes no new version, as in etcd.

        Identity (uid, creation time, deletion) stays. Raises ``ApiError`` 404, or 409 when ``metadata.resourceVersion``
        or ``metadata.uid`` is given and is not the current one.
        """
        collection = self.collection(kind)
        resource = collection.resource
        key = key_of(dict(obj))
        old = self._entry(collection, key).obj
        metadata = dict(obj["metadata"])
        self._check_current(resource, old, metadata)
        for field in ("uid", "creationTimestamp", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(field, None)
            if field in old["metadata"]:
                metadata[field] = old["metadata"][field]
        if resource.generation:
            changed = any(
                obj.get(part) != old.get(part) for part in {*obj, *old} - {"apiVersion", "kind", "metadata", "status"}
            )
            metadata["generation"] = old["metadata"]["generation"] + changed
        new = {**obj, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        if new == old or dry_run:
            return old if new == old else new
        return self._settle(collection, key, new)

    def patch(self, kind: resources.Ref, namespace: str, name: str, patch: Mapping[str, Any]) -> Object:
        """A JSON merge patch (RFC 7386) of any part, status included. Raises ``ApiError`` 404 and 409 as ``update``."""
        return self.update(kind, patches.merge(self.get(kind, namespace, name), patch))

    def delete(
        self,
        kind: resources.Ref,
        namespace: str,
        name: str,
        *,
        grace: int | None = None,
        uid: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Delete an object, or begin to; returns its current state.

        ``grace`` is in seconds and matters for pods only: None is the pod's own, 0 is immediate. A running pod with
        grace left is only marked (``deletionTimestamp``) until its kubelet deletes it with 0; an object with finalizers
        is deleted when the last of them is removed. Raises ``ApiError`` 404, or 409 if ``uid`` differs from the
        object's.
        """
        collection = self.collection(kind)
        resource = collection.resource
        key = (namespace, name)
        old = self._entry(collection, key).obj
        metadata = old["metadata"]
        if uid and uid != metadata["uid"]:
            raise errors.uid_conflict(resource.group, resource.kind, name, wanted=uid, found=metadata["uid"])
        seconds = _grace(old, grace) if resource.kind == "Pod" else 0
        if dry_run or (seconds == 0 and not metadata.get("finalizers")):
            return old if dry_run else self._remove(collection, key)
        left = metadata.get("deletionGracePeriodSeconds")
        if left is not None and seconds >= left:
            return old  # already terminating, and the deadline does not get closer
        doomed = {
            **metadata,
            "deletionTimestamp": timestamp(self.now() + timedelta(seconds=seconds)),
            "deletionGracePeriodSeconds": seconds,
        }
        return self._commit(collection, key, {**old, "metadata": doomed}, MODIFIED)

    # Following

    def subscribe(self, callback: Callable[[ObjectChange], None]) -> Callable[[], None]:
        """Call back after every change, in the order of the changes; returns a function that ends the subscription.

        A callback may write. Its changes are delivered after every subscriber has received the current one.
        """
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def compact(self) -> None:
        """Drop all changes, as etcd's compaction does: a watch from an older version has to list again."""
        for collection in self._collections.values():
            collection.history.compact(keep=0)

    # Commits

    def _entry(self, collection: Collection, key: Key) -> ObjectVersion:
        entry = collection.entries.get(key)
        if entry is None:
            raise errors.not_found(collection.resource.group, collection.resource.plural, key[1])
        return entry

    @staticmethod
    def _check_current(resource: resources.Resource, old: Object, metadata: Mapping[str, Any]) -> None:
        """Optimistic concurrency: a version or uid that the writer names must be the current one."""
        uid, found = metadata.get("uid"), old["metadata"]["uid"]
        if uid and uid != found:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"
            raise errors.conflict(resource.group, resource.plural, metadata["name"], why)
        if metadata.get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
            raise errors.conflict(resource.group, resource.plural, metadata["name"])

    def _settle(self, collection: Collection, key: Key, new: Object) -> Object:
        """Commit a replacement, and finish a deletion whose last finalizer it removed."""
        metadata = new["metadata"]
        held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" in metadata and not held:
            return self._remove(collection, key, last=new)
        return self._commit(collection, key, new, MODIFIED)

    def _commit(self, collection: Collection, key: Key, new: Object, kind: str) -> Object:
        self._version += 1
        new["metadata"]["resourceVersion"] = str(self._version)
        previous = collection.entries.get(key)
        entry = ObjectVersion(new, version=self._version, written_at=self.now())
        collection.put(key, entry)
        self._publish(ObjectChange(kind, collection.resource, entry, previous))
        return new

    def _remove(self, collection: Collection, key: Key, *, last: Object | None = None) -> Object:
        previous = collection.drop(key)
        self._version += 1
        gone = dict(last or previous.obj)
        gone["metadata"] = {**gone["metadata"], "resourceVersion": str(self._version)}
        entry = ObjectVersion(gone, version=self._version, written_at=self.now())
        self._publish(ObjectChange(DELETED, collection.resource, entry, previous))
        return gone

    def _publish(self, change: ObjectChange) -> None:
        self.collection(change.resource).history.append(change)
        self._undelivered.append(change)
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._undelivered:
                delivered = self._undelivered.popleft()
                for callback in tuple(self._subscribers):
                    callback(delivered)
        finally:
            self._delivering = False


def _grace(pod: Object, requested: int | None) -> int:
    """The seconds that a pod gets to end, by the pod's delete strategy in ``pkg/registry/core/pod``."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if requested is None:
        requested = spec.get("terminationGracePeriodSeconds", 30)
    return max(requested, 0)
