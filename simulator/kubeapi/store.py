"""The object store: plain dicts by kind, namespace and name, one rising resource version over all of them.

The store is the cluster's truth. The HTTP side and the simulated world both work on it, synchronously, in one event
loop's thread. Rules for callers:

- An object handed to ``create`` or ``update`` belongs to the store from then on, and what ``get`` and ``list`` return
  is the store's own: never change either. Change by ``patch``, or by ``update`` with a new dict. Parts may be shared
  between objects (one ``images`` list for 10,000 nodes), which is what keeps a big cluster small.
- ``kind`` arguments take a kind's name (``"Pod"``), its plural (``"pods"``), ``(group, plural)`` or a ``Resource``.
- Every refusal is an ``errors.ApiError``: 404, 409, 410 …
- The store checks identity and versions, not content: validation and admission belong to requests (``writes``), while
  the world may write status and spec alike.
"""

import secrets
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from simulator.kubeapi import errors, patches, resources, selectors, shelves
from simulator.kubeapi.history import ADDED, DELETED, MODIFIED, Change, Entry

Object = dict[str, Any]

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # as k8s.io/apimachinery/pkg/util/rand: no vowels, no words


def timestamp(moment: datetime) -> str:
    """A ``metav1.Time``: RFC 3339, whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def key_of(obj: Object) -> shelves.Key:
    """Namespace and name of an object."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def generated_name(prefix: str) -> str:
    """A name as the API server makes it from ``generateName``."""
    return prefix + "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(5))


def new_uid() -> str:
    """A fresh ``metadata.uid``."""
    return str(uuid.uuid4())


class Store:
    """Objects of every kind. ``now`` is the clock (aware UTC); ``history`` is how many changes a kind remembers."""

    def __init__(self, *, now: Callable[[], datetime], history: int = 8192) -> None:
        self.now = now
        self._version = 1
        self._shelves = {
            resource.plural: shelves.Shelf(resource, history=history, floor=self._version)
            for resource in resources.RESOURCES
            if resource.stored
        }
        self._subscribers: list[Callable[[Change], None]] = []
        self._undelivered: deque[Change] = deque()
        self._delivering = False

    @property
    def version(self) -> int:
        """The newest resource version."""
        return self._version

    def shelf(self, kind: resources.Ref) -> shelves.Shelf:
        """The objects of one kind, for readers that need entries and history."""
        return self._shelves[resources.find(kind).plural]

    # Reading

    def find(self, kind: resources.Ref, namespace: str, name: str) -> Object | None:
        """One object or None. ``namespace`` is ``""`` for cluster-wide kinds."""
        entry = self.shelf(kind).entries.get((namespace, name))
        return entry.obj if entry else None

    def get(self, kind: resources.Ref, namespace: str, name: str) -> Object:
        """One object. Raises ``ApiError`` 404."""
        return self._entry(self.shelf(kind), (namespace, name)).obj

    def list(
        self, kind: resources.Ref, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """Objects by namespace and name; ``namespace`` None means all. Selectors as in a request (raises 400)."""
        shelf = self.shelf(kind)
        selection = selectors.select(kind=shelf.resource.kind, namespace=namespace, labels=labels, fields=fields)
        return selectors.matching((entry.obj for entry in shelf.candidates(selection)), selection)

    def count(self, kind: resources.Ref) -> int:
        """How many objects of a kind there are."""
        return len(self.shelf(kind).entries)

    # Writing

    def create(self, kind: resources.Ref, obj: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        """A new object; creation time, resource version, and what is absent of uid and name, are filled in.

        Raises ``ApiError`` 409 (AlreadyExists).
        """
        shelf = self.shelf(kind)
        resource = shelf.resource
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
        if key in shelf.entries:
            raise errors.already_exists(resource.group, resource.plural, key[1])
        return new if dry_run else self._commit(shelf, key, new, ADDED)

    def update(self, kind: resources.Ref, obj: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        """Replace an object. A write that changes nothing makes no new version, as in etcd.

        Identity (uid, creation time, deletion) stays. Raises ``ApiError`` 404, or 409 when ``metadata.resourceVersion``
        or ``metadata.uid`` is given and is not the current one.
        """
        shelf = self.shelf(kind)
        resource = shelf.resource
        key = key_of(dict(obj))
        old = self._entry(shelf, key).obj
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
        return self._settle(shelf, key, new)

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
        """Delete an object, or begin to: returns it as it is then.

        ``grace`` is in seconds and matters for pods only: None is the pod's own, 0 is at once. A running pod with grace
        left is only marked (``deletionTimestamp``) until its kubelet deletes it with 0, and an object with finalizers
        until the last of them is taken off. Raises ``ApiError`` 404, or 409 when ``uid`` is another one's.
        """
        shelf = self.shelf(kind)
        resource = shelf.resource
        key = (namespace, name)
        old = self._entry(shelf, key).obj
        metadata = old["metadata"]
        if uid and uid != metadata["uid"]:
            raise errors.uid_conflict(resource.group, resource.kind, name, wanted=uid, found=metadata["uid"])
        seconds = _grace(old, grace) if resource.kind == "Pod" else 0
        if dry_run or (seconds == 0 and not metadata.get("finalizers")):
            return old if dry_run else self._remove(shelf, key)
        left = metadata.get("deletionGracePeriodSeconds")
        if left is not None and seconds >= left:
            return old  # under way already, and no sooner
        doomed = {
            **metadata,
            "deletionTimestamp": timestamp(self.now() + timedelta(seconds=seconds)),
            "deletionGracePeriodSeconds": seconds,
        }
        return self._commit(shelf, key, {**old, "metadata": doomed}, MODIFIED)

    # Following

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call back after every change, in the order of the changes; returns what ends it.

        A callback may write: the changes it makes are delivered after the one under way has reached every subscriber.
        """
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def compact(self) -> None:
        """Forget all changes, as etcd's compaction does: who watches from an older version has to list again."""
        for shelf in self._shelves.values():
            shelf.history.compact(keep=0)

    # Inside

    def _entry(self, shelf: shelves.Shelf, key: shelves.Key) -> Entry:
        entry = shelf.entries.get(key)
        if entry is None:
            raise errors.not_found(shelf.resource.group, shelf.resource.plural, key[1])
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

    def _settle(self, shelf: shelves.Shelf, key: shelves.Key, new: Object) -> Object:
        """Commit a replacement, and finish a deletion whose last finalizer it took off."""
        metadata = new["metadata"]
        held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" in metadata and not held:
            return self._remove(shelf, key, last=new)
        return self._commit(shelf, key, new, MODIFIED)

    def _commit(self, shelf: shelves.Shelf, key: shelves.Key, new: Object, kind: str) -> Object:
        self._version += 1
        new["metadata"]["resourceVersion"] = str(self._version)
        previous = shelf.entries.get(key)
        entry = Entry(new, version=self._version, written_at=self.now())
        shelf.put(key, entry)
        self._publish(Change(kind, shelf.resource, entry, previous))
        return new

    def _remove(self, shelf: shelves.Shelf, key: shelves.Key, *, last: Object | None = None) -> Object:
        previous = shelf.drop(key)
        self._version += 1
        gone = dict(last or previous.obj)
        gone["metadata"] = {**gone["metadata"], "resourceVersion": str(self._version)}
        entry = Entry(gone, version=self._version, written_at=self.now())
        self._publish(Change(DELETED, shelf.resource, entry, previous))
        return gone

    def _publish(self, change: Change) -> None:
        self.shelf(change.resource).history.append(change)
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


def _grace(pod: Object, asked: int | None) -> int:
    """Seconds a pod gets to end, by the rules of the pod's delete strategy in ``pkg/registry/core/pod``."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked is None:
        asked = spec.get("terminationGracePeriodSeconds", 30)
    return max(asked, 0)
