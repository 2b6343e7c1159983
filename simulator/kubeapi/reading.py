"""Reading over HTTP: one object, lists in pages, and watches."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

from aiohttp import web

from simulator.kubeapi import errors, history, lists, paths, render, selectors, store, watches

Object = dict[str, Any]

_WATCH_FOR = 1800.0  # seconds a watch lives unless it says how long
_LOOK_AFTER = 10.0  # seconds after which an idle watch looks whether its client is still there


class Reader:
    """All reading of one store on behalf of requests. Every refusal is an ``ApiError``."""

    def __init__(self, objects: store.Store, *, bookmark_every: float) -> None:
        self._store = objects
        self._lists = lists.Lists(objects)
        self._bookmark_every = bookmark_every
        self._watches: dict[str, set[watches.Watch]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        objects.subscribe(self._changed)

    def selection(self, http: web.Request, target: paths.Target) -> selectors.Selection:
        """What a request selects by namespace, name, labels and fields. Raises 400."""
        query = http.query
        return selectors.select(
            kind=target.resource.kind,
            namespace=target.namespace,
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
        )

    def get(self, http: web.Request, target: paths.Target) -> web.Response:
        """One object. Raises 404."""
        entry = self._store.shelf(target.resource).entries.get((target.namespace or "", target.name))
        if entry is None:
            raise errors.not_found(target.resource.group, target.resource.plural, target.name)
        return _sent(self._renderer(http, target).one(entry))

    def shown(self, http: web.Request, target: paths.Target, obj: Object, status: int = 200) -> web.Response:
        """The object that a write made, in the form the writer asked for."""
        entry = self._store.shelf(target.resource).entries.get(store.key_of(obj))
        if entry is None or entry.obj is not obj:  # gone by now, or a dry run's
            entry = history.Entry(obj, version=self._store.version, written_at=self._store.now())
        return _sent(self._renderer(http, target).one(entry), status)

    def shown_all(self, http: web.Request, target: paths.Target, objects: Iterable[Object]) -> web.Response:
        """The objects that a write took away."""
        version, now = self._store.version, self._store.now()
        entries = [history.Entry(obj, version=version, written_at=now) for obj in objects]
        return _sent(self._renderer(http, target).many(entries, {"resourceVersion": str(version)}))

    def list(self, http: web.Request, target: paths.Target) -> web.Response:
        """A list, or a page of it. Raises 400, 410."""
        query = http.query
        version = self._version(query.get("resourceVersion", ""))
        exact = version if query.get("resourceVersionMatch") == "Exact" else None
        page = self._lists.page(
            self._store.shelf(target.resource),
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
        """A stream of changes, one JSON line each, until its time is over, the client leaves or it is cut."""
        query = http.query
        if query.get("sendInitialEvents") in ("true", "1"):
            text = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            cause = errors.FieldError(
                field="sendInitialEvents", reason="FieldValueForbidden", message=f"Forbidden: {text}"
            )
            raise errors.invalid("meta.k8s.io", "ListOptions", "", [cause])
        after = self._version(query.get("resourceVersion", ""))
        lifetime = _whole("timeoutSeconds", query.get("timeoutSeconds", "")) or _WATCH_FOR
        shelf, selection = self._store.shelf(target.resource), self.selection(http, target)
        renderer = self._renderer(http, target)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(http)
        try:
            watch = watches.Watch(shelf, selection, renderer, after=after, version=self._store.version)
        except errors.ApiError as error:
            await response.write(watches.error_line(error))
            return response
        bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        followers = self._watches.setdefault(target.resource.plural, set())
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
            if task not in self._tasks and http.transport is not None:  # cut on purpose
                http.transport.abort()
            else:
                raise
        finally:
            followers.discard(watch)
            self._tasks.discard(task)
        return response

    def cut(self) -> int:
        """Close the connection of every watch; returns how many there were."""
        tasks = set(self._tasks)
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        return len(tasks)

    def compact(self) -> None:
        """Forget the history of every kind, and the moments of unfinished lists."""
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
            wait = min(ends, bookmark_at if bookmarks else ends, clock() + _LOOK_AFTER) - clock()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(watch.woken.wait(), timeout=max(wait, 0.0))

    def _changed(self, change: history.Change) -> None:
        for watch in self._watches.get(change.resource.plural, ()):
            watch.woken.set()

    def _renderer(self, http: web.Request, target: paths.Target) -> render.Renderer:
        wanted = render.form(http.headers.get("Accept", ""), include=http.query.get("includeObject", ""))
        return render.Renderer(target.resource, target.group, target.version, wanted, self._store.now)

    def _version(self, text: str) -> int | None:
        """A resource version that a request names; None for none and for 0, which both mean "what there is".

        Raises 400 for what is no version, 504 for one that is not reached yet.
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
    """A number in a query, 0 when absent. Raises 400."""
    if not text:
        return 0
    if not text.isascii() or not text.isdigit():
        raise errors.bad_request(f"{name}: Invalid value: {text!r}: a whole number is expected")
    return int(text)
