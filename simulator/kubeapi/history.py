"""Stored objects, their changes, and the bounded history of changes that watches read."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from simulator.kubeapi import errors, resources

Object = dict[str, Any]

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class ObjectVersion:
    """One version of one object, and its JSON once it was needed.

    ``obj`` belongs to the store and never changes; every write makes a new entry. ``body`` is the JSON without
    apiVersion and kind, because the same object is served under several versions, and in lists without either.
    """

    __slots__ = ("_body", "obj", "version", "written_at")

    def __init__(self, obj: Object, *, version: int, written_at: datetime) -> None:
        self.obj = obj
        self.version = version
        self.written_at = written_at
        self._body: bytes | None = None

    @property
    def body(self) -> bytes:
        """JSON bytes of the object without apiVersion and kind."""
        if self._body is None:
            bare = {key: value for key, value in self.obj.items() if key not in ("apiVersion", "kind")}
            self._body = msgspec.json.encode(bare)
        return self._body

    def forget_body(self) -> None:
        """Drop the JSON of a version that is no longer current."""
        self._body = None


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """A change of one object: ``kind`` is ``ADDED``, ``MODIFIED`` or ``DELETED``.

    ``entry`` is the object after it (for a deletion: the last object, with the deletion's resource version),
    ``previous`` the version before, None for an addition.
    """

    kind: str
    resource: resources.Resource
    entry: ObjectVersion
    previous: ObjectVersion | None

    @property
    def object(self) -> Object:
        """The object after the change. Do not modify it."""
        return self.entry.obj

    @property
    def before(self) -> Object | None:
        """The object before the change. Do not modify it."""
        return self.previous.obj if self.previous else None


class History:
    """The last changes of one kind, numbered from 0, so that any number of readers can follow at their own pace."""

    def __init__(self, *, size: int, floor: int) -> None:
        self._changes: deque[ObjectChange] = deque(maxlen=size)
        self._first = 0  # number of the oldest change kept
        self._floor = floor  # resource version of the newest change that was dropped

    def append(self, change: ObjectChange) -> None:
        """Add a change; the oldest one is dropped."""
        if len(self._changes) == self._changes.maxlen:
            self._floor = self._changes[0].entry.version
            self._first += 1
        self._changes.append(change)

    def position_after(self, version: int) -> int:
        """The number of the first change newer than a resource version. Raises ``ApiError`` 410 if changes were dropped
        since."""
        if version < self._floor:
            raise errors.expired(f"too old resource version: {version} ({self._floor})")
        number = self._first + len(self._changes)
        for change in reversed(self._changes):
            if change.entry.version <= version:
                break
            number -= 1
        return number

    def end(self) -> int:
        """The number the next change will have."""
        return self._first + len(self._changes)

    def since(self, number: int) -> Iterator[ObjectChange]:
        """Changes from a number on. Raises ``ApiError`` 410 if the reader fell behind the history."""
        if number < self._first:
            raise errors.expired(f"too old resource version: the watch fell behind ({self._floor})")
        for at in range(number - self._first, len(self._changes)):
            yield self._changes[at]

    def compact(self, *, keep: int) -> None:
        """Drop all but the newest ``keep`` changes, as etcd's compaction does."""
        while len(self._changes) > keep:
            self._floor = self._changes.popleft().entry.version
            self._first += 1
