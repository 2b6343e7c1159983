"""Reads over HTTP: one object, paginated lists, and watches."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

import msgspec
from aiohttp import web

from simulator.kubeapi import errors, history, lists, paths, render, selectors, store, watches

Object = dict[str, Any]

_WATCH_SECONDS = 1800.0  # until a watch ends by default
_IDLE_CHECK_SECONDS = 10.0  # after which an idle watch checks whether its client is connected


class Reader:
    """All reads of one store on behalf of requests. Every error is an ``ApiError``."""

    def __init__(self, objects: store.Store, *, bookmark_every: float) -> None:
        self._store = objects
        self._lists = lists.Lists(objects)
        self._bookmark_every = bookmark_every
        self._watches: dict[str, set[watches.Watch]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        objects.subscribe(self._changed)

    def selection(self, http: web.Request, target: paths.Target) -> selectors.Selection:
        """The namespace, name, label and field selectors of a request. Raises 400."""
        query = http.query
        return selectors.select(
            kind=target.resource.kind,
            namespace=target.namespace,
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
        )

    def text(self, http: web.Request, target: paths.Target) -> str:
        """The object that a request names, or those that a list selects, as JSON; empty if there is none."""
        collection = self._store.collection(target.resource)
        if target.name:
            entry = collection.entries.get((target.namespace or "", target.name))
            return msgspec.json.encode(entry.obj).decode() if entry is not None else ""
        if http.method != "GET":
            return ""
        selection = self.selection(http, target)
        found = [entry.obj for entry in collection.candidates(selection) if selection.matches(entry.obj)]
        return msgspec.json.encode(found).decode() if found else ""

    def get(self, http: web.Request, target: paths.Target) -> web.Response:
        """Raises 404."""
        entry = self._store.collection(target.resource).entries.get((target.namespace or "", target.name))
        if entry is None:
            raise errors.not_found(target.resource.group, target.resource.plural, target.name)
        return _sent(self._renderer(http, target).one(entry))

    def shown(self, http: web.Request, target: paths.Target, obj: Object, status: int = 200) -> web.Response:
        """The object after a write, in the form that the request accepts."""
        entry = self._store.collection(target.resource).entries.get(store.key_of(obj))
        if entry is None or entry.obj is not obj:  # deleted meanwhile, or a dry run
            entry = history.ObjectVersion(obj, version=self._store.version, written_at=self._store.now())
        return _sent(self._renderer(http, target).one(entry), status)

    def shown_all(self, http: web.Request, target: paths.Target, objects: Iterable[Object]) -> web.Response:
        """The objects that a write deleted."""
        version, now = self._store.version, self._store.now()
        entries = [history.ObjectVersion(obj, version=version, written_at=now) for obj in objects]
        return _sent(self._renderer(http, target).many(entries, {"resourceVersion": str(version)}))

    def list(self, http: web.Request, target: paths.Target) -> web.Response:
        """A list, or a page of it. Raises 400, 410."""
        query = http.query
        version = self._version(query.get("resourceVersion", ""))
        exact = version if query.get("resourceVersionMatch") == "Exact" else None
        page = self._lists.page(
            self._store.collection(target.resource),
            self.selection(http, target),
            limit=_whole("limit", query.get("limit", "")),
            token=query.get("continue", ""),
            exact=exact,
        )
        metadata: Object = {"resourceVersion": str(page.version)}
        if page.token:
            metadata["continue"] = page.token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        return _sent(self._renderer(http, target).many(page.entries, metadata))

    async def watch(self, http: web.Request, target: paths.Target) -> web.StreamResponse:
        """A stream of changes, one JSON line each, until it times out, the client leaves or ``cut`` ends it."""
        query = http.query
        if query.get("sendInitialEvents") in ("true", "1"):
            text = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            cause = errors.FieldError(
                field="sendInitialEvents", reason="FieldValueForbidden", message=f"Forbidden: {text}"
            )
            raise errors.invalid("meta.k8s.io", "ListOptions", "", [cause])
        after = self._version(query.get("resourceVersion", ""))
        lifetime = _whole("timeoutSeconds", query.get("timeoutSeconds", "")) or _WATCH_SECONDS
        collection, selection = self._store.collection(target.resource), self.selection(http, target)
        renderer = self._renderer(http, target)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(http)
        try:
            watch = watches.Watch(collection, selection, renderer, after=after, version=self._store.version)
        except errors.ApiError as error:
            await response.write(watches.error_line(error))
            return response
        bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        followers = self._watches.setdefault(target.resource.key, set())
        task = asyncio.current_task()
        assert task is not None
        followers.add(watch)
        self._tasks.add(task)
        try:
            await self._follow(http, response, watch, lifetime=lifetime, bookmarks=bookmarks)
        except errors.ApiError as error:
            await response.write(watches.error_line(error))
        except ConnectionError:
            pass  # the client left
        except asyncio.CancelledError:
            if task not in self._tasks and http.transport is not None:  # ended by cut()
                http.transport.abort()
            else:
                raise
        finally:
            followers.discard(watch)
            self._tasks.discard(task)
        return response

    def cut(self) -> int:
        """Close the connection of every watch; returns their number."""
        tasks = set(self._tasks)
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        return len(tasks)

    def compact(self) -> None:
        """Drop the history of every kind, and the snapshots of unfinished lists."""
        self._lists.forget()
        self._store.compact()

    async def _follow(
        self, http: web.Request, response: web.StreamResponse, watch: watches.Watch, *, lifetime: float, bookmarks: bool
    ) -> None:
        clock = asyncio.get_running_loop().time
        ends = clock() + lifetime
        bookmark_at = min(clock() + self._bookmark_every, ends)
        while True:
            watch.woken.clear()
            if lines := b"".join(watch.lines()):
                await response.write(lines)
            if bookmarks and clock() >= bookmark_at and not watch.woken.is_set():
                await response.write(watch.bookmark(self._store.version))
                bookmark_at = clock() + self._bookmark_every
            if clock() >= ends or http.transport is None or http.transport.is_closing():
                return
            wait = min(ends, bookmark_at if bookmarks else ends, clock() + _IDLE_CHECK_SECONDS) - clock()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(watch.woken.wait(), timeout=max(wait, 0.0))

    def _changed(self, change: history.ObjectChange) -> None:
        for watch in self._watches.get(change.resource.key, ()):
            watch.woken.set()

    def _renderer(self, http: web.Request, target: paths.Target) -> render.Renderer:
        wanted = render.form(http.headers.get("Accept", ""), include=http.query.get("includeObject", ""))
        return render.Renderer(target.resource, target.group, target.version, wanted, self._store.now)

    def _version(self, text: str) -> int | None:
        """The resource version that a request names; None for none and for 0, which both mean "the current state".

        Raises 400 for anything but a number, 504 for a version that does not exist yet.
        """
        if text in ("", "0"):
            return None
        if not text.isascii() or not text.isdigit():
            raise errors.bad_request(f"resourceVersion: Invalid value: {text!r}: strconv.ParseUint: invalid syntax")
        if int(text) > self._store.version:
            raise errors.too_large_version(int(text), self._store.version)
        return int(text)


def _sent(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _whole(name: str, text: str) -> int:
    """A number in a query, 0 if absent. Raises 400."""
    if not text:
        return 0
    if not text.isascii() or not text.isdigit():
        raise errors.bad_request(f"{name}: Invalid value: {text!r}: must be a whole number")
    return int(text)
