"""A request that names an object, on its way through the stations.

Who (401), what (404, 405), a planned fault, may they (403), the work, the count: every request goes through the same.
What is counted is what the client saw.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from simulator.kubeapi import access, answers, budgets, calls, errors, faults, paths, reading, resources, store, writes

Object = dict[str, Any]
LogSource = Callable[[Object], str]

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Request:
    """One request. ``node`` is what it is about, ``name`` the object's, also when only the body tells it."""

    http: web.Request
    target: paths.Target
    verb: str
    who: access.Identity
    dry_run: bool
    body: bytes = b""
    name: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """Everything that requests are carried out with."""

    objects: store.Store
    reader: reading.Reader
    writer: writes.Writer
    guard: budgets.Budgets
    access: access.Access
    faults: faults.ApiFaults
    calls: calls.Calls
    log_source: LogSource

    async def handle(self, http: web.Request, target: paths.Target) -> web.StreamResponse:
        """Answer a request."""
        try:
            who = self.access.authenticate(http.headers.get("Authorization", ""))
            verb = target.verb(http.method, http.query)
            request = _Request(http=http, target=target, verb=verb, who=who, dry_run=_dry_run(http))
        except errors.ApiError as error:
            return answers.refused(error)
        return await self._with_faults(request)

    async def _with_faults(self, request: _Request) -> web.StreamResponse:
        """Carry a request out, or let it run into a planned fault: before the work, or after it."""
        await self._prepare(request)
        http, target = request.http, request.target
        fault = self.faults.take(
            method=http.method,
            verb=request.verb,
            path=http.path_qs,
            body=request.body,
            found=lambda: _text(self._present(target)),
        )
        if fault is None:
            return await self._work(request)
        after = fault.after and request.verb != "watch"
        if fault.status == faults.HOLD and after:
            response = await self._work(request, fault=fault.label)
            await self.faults.hold(fault)
            return response
        if fault.status == faults.HOLD:
            await self.faults.hold(fault)
            if not answers.gone(http):
                return await self._work(request, fault=fault.label)
        applied = after and (await self._answer(request)).status < 400
        seen = fault.status if isinstance(fault.status, int) else 0
        self._count(request, status=seen, applied=applied, fault=fault.label)
        if fault.status == faults.TIMEOUT:
            await self.faults.hold(fault)
        return answers.suffered(http, fault, group=target.group, plural=target.resource.plural, name=target.name)

    async def _work(self, request: _Request, *, fault: str = "") -> web.StreamResponse:
        """Carry a request out and count it."""
        if request.verb == "watch":
            self._count(request, status=200, applied=False, fault=fault)
            return await self._answer(request)
        response = await self._answer(request)
        self._count(request, status=response.status, applied=response.status < 400, fault=fault)
        return response

    async def _prepare(self, request: _Request) -> None:
        """Read the body, and see what the request is about, before the work changes that."""
        if request.http.can_read_body:
            request.body = await request.http.read()
        target = request.target
        said = _loose(request.body) if request.verb in ("create", "delete", "deletecollection") else {}
        if target.subresource == "eviction" or request.verb.startswith("delete"):
            options = said.get("deleteOptions") if target.subresource else said
            request.dry_run = request.dry_run or (options or {}).get("dryRun") == ["All"]
        metadata = said.get("metadata")
        request.name = target.name or str(metadata.get("name", "") if isinstance(metadata, dict) else "")
        found = self._present(target) if target.resource in (resources.PODS, resources.JOBS) else None
        if target.resource is resources.NODES:
            request.node = request.name
        elif target.resource is resources.PODS:
            request.node = str((found or {}).get("spec", {}).get("nodeName", ""))
        elif target.resource is resources.JOBS:
            request.node = _job_node(found or said)

    def _present(self, target: paths.Target) -> Object | None:
        return self.objects.find(target.resource, target.namespace or "", target.name)

    def _count(self, request: _Request, *, status: int, applied: bool, fault: str = "") -> None:
        target = request.target
        asked = calls.Asked(
            verb=request.verb,
            resource=target.plural,
            node=request.node,
            status=status,
            dry_run=request.dry_run,
            applied=applied and not request.dry_run,
        )
        call = calls.Call(
            at=self.objects.now(),
            asked=asked,
            user=request.who.name,
            namespace=target.namespace or "",
            name=request.name,
            fault=fault,
        )
        self.calls.record(call)

    async def _answer(self, request: _Request) -> web.StreamResponse:
        try:
            return await self._carried_out(request)
        except errors.ApiError as error:
            return answers.refused(error)
        except Exception as error:  # the client still gets what an API server would say of its own failure
            log.exception("%s %s", request.http.method, request.http.path_qs)
            return answers.refused(errors.internal(repr(error)))

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
            self.guard.settle()
        if request.verb == "watch":
            return await self.reader.watch(http, target)
        if request.verb == "list":
            return self.reader.list(http, target)
        if request.verb == "get":
            return self.reader.get(http, target)
        if request.verb == "deletecollection":
            selection = self.reader.selection(http, target)
            options = _decoded(request) if request.body else {}
            gone = self.writer.delete_collection(target, selection, options, dry_run=dry_run)
            return self.reader.shown_all(http, target, gone)
        if request.verb == "create":
            return self.reader.shown(http, target, self.writer.create(target, _decoded(request), dry_run=dry_run), 201)
        if request.verb == "update":
            return self.reader.shown(http, target, self.writer.replace(target, _decoded(request), dry_run=dry_run))
        if request.verb == "patch":
            media = http.content_type
            if media not in (writes.JSON_PATCH, writes.MERGE_PATCH, writes.STRATEGIC_PATCH):
                raise errors.unsupported_media((writes.JSON_PATCH, writes.MERGE_PATCH, writes.STRATEGIC_PATCH))
            changed = self.writer.patch(target, media, _json_of(request.body), dry_run=dry_run)
            return self.reader.shown(http, target, changed)
        options = _json_of(request.body) if request.body else {}
        for name in ("gracePeriodSeconds", "propagationPolicy"):
            if name in http.query:
                value: str | int = http.query[name]
                options = {**options, name: int(value) if name == "gracePeriodSeconds" else value}
        gone_ = self.writer.delete(target, options, dry_run=dry_run)
        return answers.as_json(gone_) if gone_.get("kind") == "Status" else self.reader.shown(http, target, gone_)

    def _below(self, request: _Request) -> web.Response:
        """Subresources with bodies of their own."""
        target = request.target
        if target.subresource == "log":
            if request.verb != "get":
                raise errors.method_not_allowed()
            pod = self.objects.get("Pod", target.namespace or "", target.name)
            lines = self.log_source(pod).splitlines(keepends=True)
            tail = request.http.query.get("tailLines", "")
            return web.Response(text="".join(lines[-int(tail) :] if tail.isdigit() and int(tail) else lines))
        if request.verb != "create":
            raise errors.method_not_allowed()
        body = _decoded(request)
        if target.subresource == "eviction":
            return answers.as_json(self.writer.evict(target, body, dry_run=request.dry_run), 201)
        if target.subresource == "binding":
            return answers.as_json(self.writer.bind(target, body, dry_run=request.dry_run), 201)
        return answers.as_json(self.access.token_request(body, target.namespace or "", target.name), 201)

    def _review(self, request: _Request) -> web.Response:
        body = _decoded(request)
        if request.target.resource is resources.TOKEN_REVIEWS:
            return answers.as_json(self.access.token_review(body), 201)
        who = request.who if request.target.resource is resources.SELF_ACCESS_REVIEWS else None
        return answers.as_json(self.access.access_review(body, who=who), 201)


def _dry_run(http: web.Request) -> bool:
    wanted = http.query.getall("dryRun", [])
    if wanted not in ([], ["All"]):
        raise errors.bad_request(f"dryRun: Unsupported value: {wanted}: supported values: All")
    return bool(wanted)


def _json_of(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
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


def _text(found: Object | None) -> str:
    return msgspec.json.encode(found).decode() if found is not None else ""


def _loose(body: bytes) -> Object:
    """The object in a body, empty where there is none: for the count, which refuses nothing."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _job_node(job: Object) -> str:
    """The node a job is pinned to, by name or by its host name label."""
    spec: Any = job
    for part in ("spec", "template", "spec"):
        spec = spec.get(part) if isinstance(spec, dict) else None
    if not isinstance(spec, dict):
        return ""
    return str(spec.get("nodeName") or (spec.get("nodeSelector") or {}).get("kubernetes.io/hostname") or "")
