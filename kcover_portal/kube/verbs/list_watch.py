"""Paged lists and watches, shared by all families of objects."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from kcover import reasons
from kcover_portal.kube import bounds, errors, http
from kcover_portal.kube.wire import base

PAGE_SIZE: Final = 500
SMALL_PAGE_SIZE: Final = 20  # after a page that was too large
# The server ends a watch after timeoutSeconds; the socket's time-out is a little longer.
WATCH_SLACK_SECONDS: Final = 5.0
_LIST_TRIES: Final = 3
T = TypeVar("T", bound=base.AnyObject)


class Verbs:
    """Base class of the families; they share one connection."""

    def __init__(self, connection: http.Connection) -> None:
        self._connection = connection


def path(*parts: str) -> str:
    """Joins parts to a path such as ``/api/v1/nodes/gpu-1`` and escapes them.

    Raises RefusedByServer for a part that would make it the path of another object: HTTP clients resolve ``..``.
    """
    wrong = next((part for part in parts if part in ("", ".", "..")), None)
    if wrong is not None:
        raise errors.RefusedByServer(reasons.of("object_name_invalid", path="/".join(parts), name=repr(wrong)))
    return "/" + "/".join(quote(part, safe="") for part in parts)


def selector(labels: Mapping[str, str]) -> str:
    """Returns a label selector that requires all pairs."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def pages(
    connection: http.Connection,
    at: str,
    kind: type[T],
    *,
    query: Mapping[str, str] | None = None,
    most: int = bounds.MAX_LIST_BYTES,
    seconds: float = bounds.LIST_SECONDS,
    keep: Callable[[T], bool] | None = None,
) -> tuple[list[T], str]:
    """Returns all objects of a list and its resource version; starts over if the continue token expired (410).

    ``keep``: which objects to return; the others are dropped with their page.
    Raises ``bounds.TooLarge`` for a list of more than ``most`` bytes, and stops after ``seconds``.
    """
    until = time.monotonic() + seconds
    for _ in range(_LIST_TRIES - 1):
        try:
            return _pages(connection, at, kind, query or {}, most=most, until=until, keep=keep)
        except errors.Expired:
            continue
    return _pages(connection, at, kind, query or {}, most=most, until=until, keep=keep)


def _pages(
    connection: http.Connection,
    at: str,
    kind: type[T],
    query: Mapping[str, str],
    *,
    most: int,
    until: float,
    keep: Callable[[T], bool] | None,
) -> tuple[list[T], str]:
    items: list[T] = []
    allowance = bounds.Allowance(left=most, until=until)
    size, place = PAGE_SIZE, ""
    while True:
        paged = {"limit": str(size), "continue": place} if place else {"limit": str(size)}
        try:
            page: base.Page[T] = connection.request(
                "GET",
                at,
                base.Page[kind],  # type: ignore[valid-type]
                query={**query, **paged},
                allowance=allowance,
            )
        except bounds.TooLarge:
            if size == SMALL_PAGE_SIZE or allowance.left < bounds.MAX_BYTES:
                raise
            size = SMALL_PAGE_SIZE
            continue
        items.extend(filter(keep, page.items or ()) if keep is not None else page.items or ())
        if not page.metadata.continue_:
            return items, page.metadata.resource_version
        if page.metadata.continue_ == place:
            raise errors.Unavailable(reasons.of("page_repeated", path=at))
        place = page.metadata.continue_


def watch(
    connection: http.Connection, at: str, kind: type[T], *, resource_version: str, timeout: float
) -> Iterator[tuple[str, T | None, str]]:
    """Yields (type, object or None for a bookmark, resource version) per line of a watch.

    Raises ``Expired``, which is ``BookmarksRefused`` once if the server refuses watches with bookmarks.
    """
    # Never without a resource version: a server whose store has no progress notices may refuse that.
    bookmarks = connection.bookmarks
    query = {"watch": "1", **_BOOKMARKS} if bookmarks else {"watch": "1"}
    query |= {"timeoutSeconds": str(max(1, round(timeout))), "resourceVersion": resource_version}
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(base.WatchLine[kind])  # type: ignore[valid-type]
    try:
        for line in connection.lines(at, query=query, read_seconds=timeout + WATCH_SLACK_SECONDS):
            yield _decoded(line, decoder, at)
    except errors.KubeError as error:
        if not (bookmarks and _BOOKMARKS_REFUSED.search(http.answer(error).message)):
            raise
        connection.bookmarks = False
        raise errors.BookmarksRefused(f"bookmarks are refused; watching without them: {error}") from error


def _decoded(line: bytes, decoder: msgspec.json.Decoder[Any], at: str) -> tuple[str, Any, str]:
    """Decodes a change in one pass. Other lines are rare and are decoded again."""
    try:
        with contextlib.suppress(msgspec.ValidationError):
            entry = decoder.decode(line)
            if entry.type not in ("BOOKMARK", "ERROR"):
                return _change(entry)
        other = _LINE.decode(line)
        if other.type == "ERROR":
            status = msgspec.json.decode(other.object, type=base.Status)
            http.raise_rejected(status, code=status.code, what=f"watch {at}", write=False)
        if other.type == "BOOKMARK":
            return other.type, None, _ANY.decode(other.object).metadata.resource_version
        return _change(decoder.decode(line))  # raises the error that was suppressed
    except http.UNDECODABLE as error:
        raise errors.Unavailable(f"watch {at}: unexpected line: {error}") from error


def _change(line: base.WatchLine[Any]) -> tuple[str, Any, str]:
    return line.type, line.object, line.object.metadata.resource_version


_BOOKMARKS: Final = {"allowWatchBookmarks": "true"}
# 500: "... the required storage feature RequestWatchProgress is disabled"
_BOOKMARKS_REFUSED: Final = re.compile("RequestWatchProgress|bookmark", re.IGNORECASE)
_LINE: Final = msgspec.json.Decoder(base.WatchLine[msgspec.Raw])
_ANY: Final = msgspec.json.Decoder(base.AnyObject)
