"""Watches: a client's view of one kind's history, encoded as JSON lines."""

import asyncio
from collections.abc import Iterator

import msgspec

from simulator.kubeapi import errors, render, selectors
from simulator.kubeapi.collection import Collection
from simulator.kubeapi.history import ADDED, DELETED, MODIFIED, ObjectChange, ObjectVersion

_BATCH_CHANGES = 512  # changes in one batch, so that a long catch-up does not block the event loop


class Watch:
    """One watch. ``lines`` yields what is new; ``woken`` is set when there may be more.

    An object that begins to match the selection is ADDED for this client, one that no longer matches is DELETED,
    whatever happened to the object.
    """

    def __init__(
        self,
        collection: Collection,
        selection: selectors.Selection,
        renderer: render.Renderer,
        *,
        after: int | None,
        version: int,
    ) -> None:
        """``after`` is a resource version, None for "the current state, then changes"; ``version`` is the newest.

        Raises ``ApiError`` 410 (send it as an ERROR event) if ``after`` is older than the history.
        """
        self._history = collection.history
        self._selection = selection
        self._renderer = renderer
        self._header = True
        self.woken = asyncio.Event()
        self.version = version if after is None else after
        self._first: list[bytes] = []
        if after is None:
            self._next = self._history.end()
            for entry in collection.candidates(selection):
                if selection.matches(entry.obj):
                    self._first.append(self._line(ADDED, self._rendered(entry)))
        else:
            self._next = self._history.position_after(after)

    def lines(self) -> Iterator[bytes]:
        """The changes that this client has not received, at most one batch. Raises ``ApiError`` 410 if it lags."""
        first, self._first = self._first, []
        yield from first
        for count, change in enumerate(self._history.since(self._next)):
            if count == _BATCH_CHANGES:
                self.woken.set()
                return
            self._next += 1
            self.version = change.entry.version
            if kind := self._seen_as(change):
                entry = change.entry
                yield self._line(kind, self._rendered(entry))

    def bookmark(self, version: int, *, initial: bool = False) -> bytes:
        """A line with the resource version that this client has reached."""
        return self._line("BOOKMARK", self._renderer.bookmark(version, initial=initial))

    def _seen_as(self, change: ObjectChange) -> str | None:
        was = change.before is not None and self._selection.matches(change.before)
        now = change.kind != DELETED and self._selection.matches(change.object)
        if now:
            return MODIFIED if was else ADDED
        return DELETED if was else None

    def _rendered(self, entry: ObjectVersion) -> bytes:
        text = self._renderer.one(entry, header=self._header)
        self._header = False
        return text

    @staticmethod
    def _line(kind: str, obj: bytes) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), obj)


def error_line(error: errors.ApiError) -> bytes:
    """An error as the last line of a watch."""
    return b'{"type":"ERROR","object":%s}\n' % msgspec.json.encode(error.status())
