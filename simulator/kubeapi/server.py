"""The HTTP side: one aiohttp application that answers as an API server does.

A request goes through the same stations every time: who (401), what (404, 405), may they (403), a planned fault, the
work, the count. What is counted is what the client saw.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
from aiohttp import web

from simulator.kubeapi import (
    access,
    budgets,
    calls,
    discovery,
    errors,
    faults,
    garbage,
    paths,
    reading,
    resources,
    store,
    writes,
)

Object = dict[str, Any]
LogSource = Callable[[Object], str]
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
BODY_LIMIT = 3 * 1024 * 1024  # bytes, as the API server's
_EVENT_LIFETIME = timedelta(hours=1)  # --event-ttl
_SWEEP_EVERY = 60.0  # seconds
_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


@dataclass(slots=True, kw_only=True)
class _Request:
    """One request on its way through the stations."""

    http: web.Request
    target: paths.Target
    verb: str
    who: access.Identity
    dry_run: bool
    body: Any = None


class ApiServer:
    """A Kubernetes API over a store.

    ``tokens`` are the bearer tokens that are let in, ``anonymous`` admits callers without one (kubectl sends none over
    plain HTTP). ``log_source`` makes the text of a pod's log. ``bookmark_every`` is in seconds (a real server: 60).
    """

    def __init__(
        self,
        objects: store.Store,
        *,
        tokens: Mapping[str, access.Identity],
        anonymous: bool = False,
        log_source: LogSource = lambda pod: "",
        bookmark_every: float = 60.0,
    ) -> None:
        self.store = objects
        self.calls = calls.Calls()
        self.faults = faults.ApiFaults()
        self.access = access.Access(objects, tokens=tokens, anonymous=anonymous)
        self.budgets = budgets.Budgets(objects)
        self._collector = garbage.Collector(objects)
        self._writer = writes.Writer(objects, self.budgets, self._collector)
        self._reader = reading.Reader(objects, bookmark_every=bookmark_every)
        self._log_source = log_source
        for name in _NAMESPACES:
            if objects.find("Namespace", "", name) is None:
                objects.create("Namespace", {"metadata": {"name": name}, "status": {"phase": "Active"}})

    def application(self) -> web.Application:
        """An application that serves ``/api``, ``/apis`` and what belongs to them; more routes may be added to it."""
        app = web.Application(client_max_size=BODY_LIMIT)
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
        """Close every watch, as a restarting API server does; returns how many there were."""
        return self._reader.cut()

    def compact(self) -> None:
        """Forget the history: watches from older versions and unfinished lists get 410."""
        self._reader.compact()

    # Routes that name no object

    def _exposed(self, handler: Handler) -> Handler:
        """The handler, exposed to planned faults as every request is."""

        async def exposed(http: web.Request) -> web.StreamResponse:
            fault = self.faults.take(method=http.method, verb="get", path=http.path_qs)
            return await handler(http) if fault is None else await _suffered(http, fault)

        return exposed

    async def _version(self, request: web.Request) -> web.Response:
        return _json(VERSION)

    async def _healthy(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _schema(self, request: web.Request) -> web.Response:
        """An OpenAPI document without kinds: kubectl then sends what it has instead of validating it first."""
        if "proto-openapi" in request.headers.get("Accept", ""):
            headers = {"Content-Type": discovery.SCHEMA_PROTOBUF}
            return web.Response(body=discovery.SCHEMA_MESSAGE, headers=headers)
        return _json(discovery.SCHEMA)

    async def _discover(self, request: web.Request) -> web.Response:
        try:
            self.access.authenticate(request.headers.get("Authorization", ""))
        except errors.ApiError as error:
            return _refused(error)
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
        return web.Response(status=404, text="404 page not found\n") if found is None else _json(found)

    # Routes that do

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        try:
            target = paths.parse(http.path)
            if target is None:
                return await self._exposed(self._discover)(http)
            who = self.access.authenticate(http.headers.get("Authorization", ""))
            verb = target.verb(http.method, http.query)
            request = _Request(http=http, target=target, verb=verb, who=who, dry_run=_dry_run(http))
        except errors.ApiError as error:
            return _refused(error)
        return await self._with_faults(request)

    async def _with_faults(self, request: _Request) -> web.StreamResponse:
        """Carry a request out, or let it run into a planned fault: before the work, or after it."""
        fault = self.faults.take(method=request.http.method, verb=request.verb, path=request.http.path_qs)
        if fault is None:
            node = await self._prepared(request)
            if request.verb == "watch":
                self._count(request, node=node, status=200, applied=False)
                return await self._answer(request)
            response = await self._answer(request)
            self._count(request, node=node, status=response.status, applied=response.status < 400)
            return response
        node = await self._prepared(request)
        applied = False
        if fault.after and request.verb != "watch":
            applied = (await self._answer(request)).status < 400
        seen = fault.status if isinstance(fault.status, int) else 0
        self._count(request, node=node, status=seen, applied=applied, fault=fault.label)
        target = request.target
        return await _suffered(request.http, fault, group=target.group, plural=target.resource.plural, name=target.name)

    async def _prepared(self, request: _Request) -> str:
        """Read the body, and tell which node the request is about, before the work changes that."""
        if request.http.can_read_body:
            request.body = await request.http.read()
        target = request.target
        if target.subresource == "eviction" or request.verb.startswith("delete"):
            said = _loose(request.body)
            options = said.get("deleteOptions") if target.subresource else said
            request.dry_run = request.dry_run or (options or {}).get("dryRun") == ["All"]
        resource = target.resource
        if resource is resources.NODES:
            return target.name
        obj: Any = None
        if resource is resources.PODS and target.name:
            obj = self.store.find(resource, target.namespace or "", target.name)
            return str((obj or {}).get("spec", {}).get("nodeName", ""))
        if resource is resources.JOBS:
            obj = self.store.find(resource, target.namespace or "", target.name)
            if obj is None and request.verb == "create":
                obj = _loose(request.body)
            return _job_node(obj or {})
        return ""

    def _count(self, request: _Request, *, node: str, status: int, applied: bool, fault: str = "") -> None:
        target = request.target
        asked = calls.Asked(
            verb=request.verb,
            resource=target.plural,
            node=node,
            status=status,
            dry_run=request.dry_run,
            applied=applied and not request.dry_run,
        )
        call = calls.Call(
            at=self.store.now(),
            asked=asked,
            user=request.who.name,
            namespace=target.namespace or "",
            name=target.name,
            fault=fault,
        )
        self.calls.record(call)

    async def _answer(self, request: _Request) -> web.StreamResponse:
        try:
            return await self._carried_out(request)
        except errors.ApiError as error:
            return _refused(error)

    async def _carried_out(self, request: _Request) -> web.StreamResponse:
        target, http, dry_run = request.target, request.http, request.dry_run
        if target.resource is not resources.SELF_ACCESS_REVIEWS:  # what one may do, anyone may ask
            self.access.authorize(
                request.who,
                request.verb,
                group=target.group,
                plural=target.plural,
                name=target.name,
                namespace=target.namespace,
            )
        if target.subresource not in ("", "status"):
            return self._below(request)
        if not target.resource.stored:
            return self._review(request)
        if target.resource is resources.BUDGETS:
            self.budgets.settle()
        if request.verb == "watch":
            return await self._reader.watch(http, target)
        if request.verb == "list":
            return self._reader.list(http, target)
        if request.verb == "get":
            return self._reader.get(http, target)
        if request.verb == "deletecollection":
            selection = self._reader.selection(http, target)
            options = _decoded(request) if request.body else {}
            gone = self._writer.delete_collection(target, selection, options, dry_run=dry_run)
            return self._reader.shown_all(http, target, gone)
        if request.verb == "create":
            return self._reader.shown(
                http, target, self._writer.create(target, _decoded(request), dry_run=dry_run), 201
            )
        if request.verb == "update":
            return self._reader.shown(http, target, self._writer.replace(target, _decoded(request), dry_run=dry_run))
        if request.verb == "patch":
            media = http.content_type
            if media not in (writes.JSON_PATCH, writes.MERGE_PATCH, writes.STRATEGIC_PATCH):
                raise errors.unsupported_media((writes.JSON_PATCH, writes.MERGE_PATCH, writes.STRATEGIC_PATCH))
            changed = self._writer.patch(target, media, _json_of(request.body), dry_run=dry_run)
            return self._reader.shown(http, target, changed)
        options = _json_of(request.body) if request.body else {}
        for name in ("gracePeriodSeconds", "propagationPolicy"):
            if name in http.query:
                value: str | int = http.query[name]
                options = {**options, name: int(value) if name == "gracePeriodSeconds" else value}
        gone_ = self._writer.delete(target, options, dry_run=dry_run)
        return _json(gone_) if gone_.get("kind") == "Status" else self._reader.shown(http, target, gone_)

    def _below(self, request: _Request) -> web.Response:
        """Subresources with bodies of their own."""
        target = request.target
        if target.subresource == "log":
            if request.verb != "get":
                raise errors.method_not_allowed()
            pod = self.store.get("Pod", target.namespace or "", target.name)
            lines = self._log_source(pod).splitlines(keepends=True)
            tail = request.http.query.get("tailLines", "")
            return web.Response(text="".join(lines[-int(tail) :] if tail.isdigit() and int(tail) else lines))
        if request.verb != "create":
            raise errors.method_not_allowed()
        body = _decoded(request)
        if target.subresource == "eviction":
            return _json(self._writer.evict(target, body, dry_run=request.dry_run), 201)
        if target.subresource == "binding":
            return _json(self._writer.bind(target, body, dry_run=request.dry_run), 201)
        spec = body.get("spec") or {}
        self.store.get("ServiceAccount", target.namespace or "", target.name)
        lifetime = timedelta(seconds=spec.get("expirationSeconds") or 3600)
        audiences = spec.get("audiences") or [access.API_AUDIENCE]
        token = self.access.issue(target.namespace or "", target.name, audiences=audiences, lifetime=lifetime)
        until = store.timestamp(self.store.now() + lifetime)
        return _json({**body, "status": {"token": token, "expirationTimestamp": until}}, 201)

    def _review(self, request: _Request) -> web.Response:
        body = _decoded(request)
        if request.target.resource is resources.TOKEN_REVIEWS:
            return _json(self.access.token_review(body), 201)
        who = request.who if request.target.resource is resources.SELF_ACCESS_REVIEWS else None
        return _json(self.access.access_review(body, who=who), 201)

    # Upkeep

    async def _sweeping(self, app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(self._sweep())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_EVERY)
            self.expire_events()

    def expire_events(self) -> None:
        """Drop Events that nobody wrote for an hour."""
        before = self.store.now() - _EVENT_LIFETIME
        for key, entry in list(self.store.shelf("Event").entries.items()):
            if entry.written_at < before:
                self.store.delete("Event", *key)

    async def _end_watches(self, app: web.Application) -> None:
        self._reader.cut()


def _json(body: Object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def _refused(error: errors.ApiError) -> web.Response:
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    if error.code == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="simulator"'
    body = msgspec.json.encode(error.status())
    return web.Response(body=body, status=error.code, content_type="application/json", headers=headers)


async def _suffered(
    http: web.Request, fault: faults.ApiFault, *, group: str = "", plural: str = "", name: str = ""
) -> web.Response:
    """What a client gets of a fault: a refusal, or a connection that ends, at once or late, without an answer."""
    if isinstance(fault.status, int):
        return _refused(faults.refusal(fault.status, group=group, plural=plural, name=name))
    if fault.status == faults.TIMEOUT:
        await asyncio.sleep(fault.seconds)
    if http.transport is not None:
        http.transport.abort()
    return web.Response(status=500)  # never sent


def _dry_run(http: web.Request) -> bool:
    wanted = http.query.getall("dryRun", [])
    if wanted not in ([], ["All"]):
        raise errors.bad_request(f"dryRun: Unsupported value: {wanted}: supported values: All")
    return bool(wanted)


def _json_of(body: bytes | None) -> Any:
    try:
        return msgspec.json.decode(body or b"")
    except msgspec.DecodeError as error:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def _decoded(request: _Request) -> Object:
    """The body of a write. Raises ``ApiError`` 415 for anything but JSON, 400 for what is no object."""
    if request.http.content_type not in ("application/json", "application/octet-stream"):
        raise errors.unsupported_media(["application/json"])
    body = _json_of(request.body)
    if not isinstance(body, dict):
        raise errors.bad_request("the body of the request is no object")
    return body


def _loose(body: bytes | None) -> Object:
    try:
        found = msgspec.json.decode(body or b"")
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _job_node(job: Object) -> str:
    """The node a job is pinned to, by name or by its host name label."""
    spec = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    return str(spec.get("nodeName") or (spec.get("nodeSelector") or {}).get("kubernetes.io/hostname") or "")
