"""All objects of one kind: their order, their indexes, their history."""

from collections.abc import Iterable

from simulator.kubeapi import resources, selectors
from simulator.kubeapi.history import History, ObjectVersion

Key = tuple[str, str]  # namespace ("" for cluster-wide kinds), name


class Collection:
    """The objects of one kind. Only the store writes to it."""

    def __init__(self, resource: resources.Resource, *, history: int, floor: int) -> None:
        self.resource = resource
        self.entries: dict[Key, ObjectVersion] = {}
        self.history = History(size=history, floor=floor)
        self._order: list[Key] | None = []
        indexed = (*resource.indexed, *(("metadata.namespace",) if resource.namespaced else ()))
        self._index: dict[str, dict[str, dict[Key, None]]] = {path: {} for path in indexed}

    def put(self, key: Key, entry: ObjectVersion) -> None:
        previous = self.entries.get(key)
        if previous is None:
            self._order = None
        else:
            previous.forget_body()
        self.entries[key] = entry
        for path, index in self._index.items():
            value = selectors.value_at(entry.obj, path)
            if previous is not None and (old := selectors.value_at(previous.obj, path)) != value:
                self._unindex(index, old, key)
            index.setdefault(value, {})[key] = None

    def drop(self, key: Key) -> ObjectVersion:
        entry = self.entries.pop(key)
        self._order = None
        for path, index in self._index.items():
            self._unindex(index, selectors.value_at(entry.obj, path), key)
        return entry

    @staticmethod
    def _unindex(index: dict[str, dict[Key, None]], value: str, key: Key) -> None:
        index[value].pop(key)
        if not index[value]:
            del index[value]

    def ordered(self) -> list[ObjectVersion]:
        """All entries by namespace and name, the order of etcd's keys."""
        if self._order is None:
            self._order = sorted(self.entries)
        return [self.entries[key] for key in self._order]

    def candidates(self, selection: selectors.Selection) -> Iterable[ObjectVersion]:
        """A superset of the selected entries, in order. It is found by name or by index if the selection allows it."""
        for term in selection.fields:
            if term.negated:
                continue
            if term.path in self._index:
                return [self.entries[key] for key in sorted(self._index[term.path].get(term.value, ()))]
            if term.path == "metadata.name" and (not self.resource.namespaced or selection.namespace is not None):
                entry = self.entries.get((selection.namespace or "", term.value))
                return [entry] if entry else []
        if selection.namespace is not None and self.resource.namespaced:
            inside = self._index["metadata.namespace"].get(selection.namespace, ())
            return [self.entries[key] for key in sorted(inside)]
        return self.ordered()
