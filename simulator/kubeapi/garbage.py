"""Garbage collection: dependents are deleted after their owner, and a namespace is deleted with its contents."""

from typing import Any

from simulator.kubeapi import history, resources, store

Object = dict[str, Any]
Place = tuple[str, str, str]  # key of the kind, namespace, name


class Collector:
    """Deletes dependents in the background, by ``metadata.ownerReferences``."""

    def __init__(self, objects: store.Store) -> None:
        self._store = objects
        self._dependents: dict[str, set[Place]] = {}
        objects.subscribe(self._changed)

    def orphan(self, uid: str) -> None:
        """Remove an owner that is being deleted from its dependents' references, so that they stay."""
        for plural, namespace, name in sorted(self._dependents.get(uid, ())):
            obj = self._store.get(plural, namespace, name)
            kept = [ref for ref in obj["metadata"]["ownerReferences"] if ref["uid"] != uid]
            self._store.update(plural, {**obj, "metadata": {**obj["metadata"], "ownerReferences": kept}})

    def _changed(self, change: history.ObjectChange) -> None:
        metadata = change.object["metadata"]
        place = (change.resource.key, *store.key_of(change.object))
        now = {ref["uid"] for ref in metadata.get("ownerReferences") or ()}
        before = change.before
        then = {ref["uid"] for ref in before["metadata"].get("ownerReferences") or ()} if before else set()
        if change.kind == history.DELETED:
            now = set()
        for uid in then - now:
            self._dependents[uid].discard(place)
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in now - then:
            self._dependents.setdefault(uid, set()).add(place)
        if change.kind == history.DELETED:
            if change.resource is resources.NAMESPACES:
                self._empty(metadata["name"])
            for dependent in sorted(self._dependents.get(metadata["uid"], ())):
                self._release(dependent)

    def _release(self, place: Place) -> None:
        """Delete a dependent unless another of its owners still exists."""
        plural, namespace, name = place
        obj = self._store.find(plural, namespace, name)
        if obj and not any(self._alive(ref, namespace) for ref in obj["metadata"].get("ownerReferences") or ()):
            self._store.delete(plural, namespace, name)

    def _alive(self, ref: Object, namespace: str) -> bool:
        try:
            resource = resources.find(ref["kind"])
        except KeyError:
            return True  # an owner of an unknown kind counts as present
        owner = self._store.find(resource, namespace if resource.namespaced else "", ref["name"])
        return owner is not None and owner["metadata"]["uid"] == ref["uid"]

    def _empty(self, namespace: str) -> None:
        for resource in resources.RESOURCES:
            if resource.namespaced and resource.stored:
                for obj in self._store.list(resource, namespace=namespace):
                    self._store.delete(resource, namespace, obj["metadata"]["name"], grace=0)
