"""The API server: one aiohttp application over a store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from aiohttp import web

from simulator.kubeapi import (
    access,
    budgets,
    calls,
    discovery,
    errors,
    faults,
    garbage,
    handler,
    paths,
    pod_logs,
    reader,
    responses,
    store,
    writer,
)

Object = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

VERSION = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.4",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2025-04-22T16:00:00Z",
    "goVersion": "go1.23.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}
MAX_BODY_BYTES = 3 * 1024 * 1024  # as the API server's
_EVENT_LIFETIME = timedelta(hours=1)  # --event-ttl
_SWEEP_SECONDS = 60.0
_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class ApiServer:
    """A Kubernetes API over a store.

    ``tokens`` are the accepted bearer tokens; ``anonymous`` admits callers without one (kubectl sends none over plain
    HTTP). ``bookmark_every`` is in seconds (a real server: 60). ``logs``: what containers print.
    """

    def __init__(
        self,
        objects: store.Store,
        *,
        tokens: Mapping[str, access.Identity],
        anonymous: bool = False,
        bookmark_every: float = 60.0,
    ) -> None:
        self.store = objects
        self.calls = calls.Calls()
        self.faults = faults.ApiFaults()
        self.logs = pod_logs.PodLogs(objects)
        self.access = access.Access(objects, tokens=tokens, anonymous=anonymous)
        self.budgets = budgets.Budgets(objects)
        self._reader = reader.Reader(objects, bookmark_every=bookmark_every)
        self._handler = handler.Handler(
            objects=objects,
            reader=self._reader,
            writer=writer.Writer(objects, self.budgets, garbage.Collector(objects)),
            guard=self.budgets,
            access=self.access,
            faults=self.faults,
            calls=self.calls,
            logs=self.logs,
        )
        for name in _NAMESPACES:
            if objects.find("Namespace", "", name) is None:
                objects.create("Namespace", {"metadata": {"name": name}, "status": {"phase": "Active"}})

    def application(self) -> web.Application:
        """An application that serves ``/api`` and ``/apis``; the caller may add routes."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_get("/version", self._exposed(self._version))
        for path in ("/healthz", "/livez", "/readyz"):
            app.router.add_get(path, self._exposed(self._healthy))
        app.router.add_get("/api", self._exposed(self._discover))
        app.router.add_get("/apis", self._exposed(self._discover))
        app.router.add_get("/openapi/v2", self._schema)
        app.router.add_route("*", "/api/{rest:.*}", self._handle)
        app.router.add_route("*", "/apis/{rest:.*}", self._handle)
        app.cleanup_ctx.append(self._sweeping)
        app.on_shutdown.append(self._end_watches)
        return app

    def cut_watches(self) -> int:
        """Close every watch, as an API server that restarts does; returns their number."""
        return self._reader.cut()

    def compact(self) -> None:
        """Drop the history: watches from older versions and unfinished lists get 410."""
        self._reader.compact()

    # Routes that name no object

    def _exposed(self, handler: Handler) -> Handler:
        """The handler, subject to planned faults as every request is."""

        async def exposed(http: web.Request) -> web.StreamResponse:
            fault = self.faults.take(method=http.method, verb="get", path=http.path_qs)
            if fault is not None and fault.status in (faults.TIMEOUT, faults.HOLD):
                await self.faults.hold(fault)
            if fault is None or (fault.status == faults.HOLD and not responses.client_left(http)):
                return await handler(http)
            return responses.fault_response(http, fault)

        return exposed

    async def _version(self, request: web.Request) -> web.Response:
        return responses.json_response(VERSION)

    async def _healthy(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _schema(self, request: web.Request) -> web.Response:
        """An OpenAPI document without kinds: kubectl then sends what it has instead of validating it first."""
        if "proto-openapi" in request.headers.get("Accept", ""):
            headers = {"Content-Type": discovery.SCHEMA_PROTOBUF}
            return web.Response(body=discovery.SCHEMA_MESSAGE, headers=headers)
        return responses.json_response(discovery.SCHEMA)

    async def _discover(self, request: web.Request) -> web.Response:
        try:
            self.access.authenticate(request.headers.get("Authorization", ""))
        except errors.ApiError as error:
            return responses.error_response(error)
        parts = [part for part in request.path.split("/") if part]
        found: Object | None = None
        if parts == ["api"]:
            found = discovery.core_versions(request.host)
        elif parts == ["apis"]:
            found = discovery.groups()
        elif parts[0] == "api":
            found = discovery.kinds("", parts[1])
        elif len(parts) == 2:
            found = discovery.group(parts[1])
        else:
            found = discovery.kinds(parts[1], parts[2])
        return (
            web.Response(status=404, text="404 page not found\n") if found is None else responses.json_response(found)
        )

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        try:
            target = paths.parse(http.path)
        except errors.ApiError as error:
            return responses.error_response(error)
        if target is None:
            return await self._exposed(self._discover)(http)
        return await self._handler.handle(http, target)

    # Upkeep

    async def _sweeping(self, app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(self._sweep())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.expire_events()

    def expire_events(self) -> None:
        """Delete Events that were not written for an hour."""
        before = self.store.now() - _EVENT_LIFETIME
        for key, entry in list(self.store.collection("Event").entries.items()):
            if entry.written_at < before:
                self.store.delete("Event", *key)

    async def _end_watches(self, app: web.Application) -> None:
        self.faults.clear()  # held requests would delay the shutdown
        self._reader.cut()
