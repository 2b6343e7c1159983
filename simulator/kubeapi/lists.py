"""Paginated lists: every page shows the state at the time of the first page, as etcd's revisions do."""

import base64
import bisect
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from simulator.kubeapi import errors, selectors, store
from simulator.kubeapi.collection import Collection
from simulator.kubeapi.history import ObjectVersion

_MAX_SNAPSHOTS = 32
_SNAPSHOT_LIFETIME = timedelta(minutes=5)  # etcd compacts as often
_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Entries, the resource version they show, and the token of the next page (empty at the end). ``remaining`` is None
    if unknown."""

    entries: list[ObjectVersion]
    version: int
    token: str = ""
    remaining: int | None = None


class _Continue(msgspec.Struct):
    """The content of a continue token, as in the API server: the version, and the key after which to continue."""

    rv: int
    start: str
    v: str = "meta.k8s.io/v1"


class Lists:
    """Pages over a store. Snapshots for unfinished lists are kept for a while, up to a maximum number."""

    def __init__(self, objects: store.Store) -> None:
        self._store = objects
        self._snapshots: OrderedDict[tuple[str, int], tuple[datetime, list[ObjectVersion]]] = OrderedDict()

    def page(
        self,
        collection: Collection,
        selection: selectors.Selection,
        *,
        limit: int = 0,
        token: str = "",
        exact: int | None = None,
    ) -> Page:
        """A page of at most ``limit`` objects (0: all). ``exact`` requests one resource version.

        Raises ``ApiError`` 410 if the snapshot of a token (or of ``exact``) is gone, 400 for a malformed token.
        """
        if token:
            return self._continued(collection, selection, limit, _read(token))
        version = self._store.version
        if exact is not None and exact != version:
            raise errors.expired(f"The resourceVersion for the provided list is too old: {exact}")
        entries = [entry for entry in collection.candidates(selection) if selection.matches(entry.obj)]
        if not limit or len(entries) <= limit:
            return Page(entries=entries, version=version)
        self._keep(collection.resource.key, version, collection.ordered())
        return self._cut(entries, selection, version, limit)

    def forget(self) -> None:
        """Drop all snapshots, as a compaction does: every token issued before has expired."""
        self._snapshots.clear()

    def _continued(self, collection: Collection, selection: selectors.Selection, limit: int, token: _Continue) -> Page:
        found = self._snapshots.get((collection.resource.key, token.rv))
        if found is None or found[0] < self._store.now() - _SNAPSHOT_LIFETIME:
            raise errors.expired(_EXPIRED)
        start = bisect.bisect_right(found[1], token.start, key=_key)
        entries = [entry for entry in found[1][start:] if selection.matches(entry.obj)]
        if not limit or len(entries) <= limit:
            return Page(entries=entries, version=token.rv)
        return self._cut(entries, selection, token.rv, limit)

    def _keep(self, plural: str, version: int, entries: list[ObjectVersion]) -> None:
        self._snapshots[plural, version] = (self._store.now(), entries)
        while len(self._snapshots) > _MAX_SNAPSHOTS:
            self._snapshots.popitem(last=False)

    @staticmethod
    def _cut(entries: list[ObjectVersion], selection: selectors.Selection, version: int, limit: int) -> Page:
        shown = entries[:limit]
        selective = selection.labels or selection.fields
        return Page(
            entries=shown,
            version=version,
            token=_write(_Continue(rv=version, start=_key(shown[-1]))),
            remaining=None if selective else len(entries) - limit,
        )


def _key(entry: ObjectVersion) -> str:
    """The order of the store's keys as one text; no name contains a NUL."""
    return "\0".join(store.key_of(entry.obj))


def _write(token: _Continue) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()


def _read(token: str) -> _Continue:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Continue)
    except (ValueError, msgspec.DecodeError) as error:
        raise errors.bad_request("continue key is not valid: malformed token") from error
