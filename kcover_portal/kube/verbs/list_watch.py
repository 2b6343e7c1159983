"""Paged lists and watches, shared by all families of objects."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from kcover_portal.kube import errors, http
from kcover_portal.kube.wire import base

PAGE_SIZE: Final = 500
# The server ends a watch after timeoutSeconds; the socket's time-out is a little longer.
WATCH_SLACK_SECONDS: Final = 5.0
_LIST_TRIES: Final = 3
T = TypeVar("T", bound=base.AnyObject)


class Verbs:
    """Base class of the families; they share one connection."""

    def __init__(self, connection: http.Connection) -> None:
        self._connection = connection


def path(*parts: str) -> str:
    """Joins parts to a path such as ``/api/v1/nodes/gpu-1`` and escapes them."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def selector(labels: Mapping[str, str]) -> str:
    """Returns a label selector that requires all pairs."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def pages(
    connection: http.Connection, at: str, kind: type[T], *, query: Mapping[str, str] | None = None
) -> tuple[list[T], str]:
    """Returns all objects of a list and its resource version; starts over if the continue token expired (410)."""
    for _ in range(_LIST_TRIES - 1):
        try:
            return _pages(connection, at, kind, query or {})
        except errors.Expired:
            continue
    return _pages(connection, at, kind, query or {})


def _pages(connection: http.Connection, at: str, kind: type[T], query: Mapping[str, str]) -> tuple[list[T], str]:
    items: list[T] = []
    more: dict[str, str] = {}
    while True:
        page: base.Page[T] = connection.request(
            "GET",
            at,
            base.Page[kind],  # type: ignore[valid-type]
            query={**query, "limit": str(PAGE_SIZE), **more},
        )
        items.extend(page.items or ())
        if not page.metadata.continue_:
            return items, page.metadata.resource_version
        more = {"continue": page.metadata.continue_}


def watch(
    connection: http.Connection, at: str, kind: type[T], *, resource_version: str | None, timeout: float
) -> Iterator[tuple[str, T | None, str]]:
    """Yields (type, object or None for a bookmark, resource version) per line of a watch. Raises ``Expired``."""
    query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(max(1, round(timeout)))}
    if resource_version is not None:
        query["resourceVersion"] = resource_version
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
    for line in connection.lines(at, query=query, read_seconds=timeout + WATCH_SLACK_SECONDS):
        try:
            entry = _LINE.decode(line)
            if entry.type == "ERROR":
                status = msgspec.json.decode(entry.object, type=base.Status)
                http.raise_rejected(status, code=status.code, what=f"watch {at}", write=False)
            if entry.type == "BOOKMARK":
                yield entry.type, None, _ANY.decode(entry.object).metadata.resource_version
            else:
                found: T = decoder.decode(entry.object)
                yield entry.type, found, found.metadata.resource_version
        except msgspec.MsgspecError as error:
            raise errors.Unavailable(f"watch {at}: unexpected line: {error}") from error


_LINE: Final = msgspec.json.Decoder(base.WatchLine)
_ANY: Final = msgspec.json.Decoder(base.AnyObject)
