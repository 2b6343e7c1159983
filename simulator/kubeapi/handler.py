"""The path of every request that names an object.

Every request passes through the same steps: authentication (401), target and verb (404, 405), a planned fault,
authorization (403), the work, the request log. The log records what the client saw.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from simulator.kubeapi import (
    access,
    budgets,
    calls,
    concerned_nodes,
    errors,
    faults,
    paths,
    pod_logs,
    reader,
    resources,
    responses,
    store,
    writer,
)

Object = dict[str, Any]

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Request:
    """One request. ``node``: the node that it concerns. ``name``: the object's name, even if only the body has it."""

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
    """Carries out requests."""

    objects: store.Store
    reader: reader.Reader
    writer: writer.Writer
    guard: budgets.Budgets
    access: access.Access
    faults: faults.ApiFaults
    calls: calls.Calls
    logs: pod_logs.PodLogs

    async def handle(self, http: web.Request, target: paths.Target) -> web.StreamResponse:
        try:
            who = self.access.authenticate(http.headers.get("Authorization", ""))
            verb = target.verb(http.method, http.query)
            request = _Request(http=http, target=target, verb=verb, who=who, dry_run=_dry_run(http))
        except errors.ApiError as error:
            return responses.error_response(error)
        return await self._with_faults(request)

    async def _with_faults(self, request: _Request) -> web.StreamResponse:
        """Carry a request out, unless a planned fault interferes before or after the work."""
        await self._prepare(request)
        http, target = request.http, request.target
        fault = self.faults.take(
            method=http.method,
            verb=request.verb,
            path=http.path_qs,
            body=request.body,
            found=lambda: self.reader.text(http, target),
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
            if not responses.client_left(http):
                return await self._work(request, fault=fault.label)
        applied = after and (await self._answer(request)).status < 400
        seen = fault.status if isinstance(fault.status, int) else 0
        self._count(request, status=seen, applied=applied, fault=fault.label)
        if fault.status == faults.TIMEOUT:
            await self.faults.hold(fault)
        return responses.fault_response(
            http, fault, group=target.group, plural=target.resource.plural, name=target.name
        )

    async def _work(self, request: _Request, *, fault: str = "") -> web.StreamResponse:
        """Carry a request out and log it."""
        if request.verb == "watch":
            self._count(request, status=200, applied=False, fault=fault)
            return await self._answer(request)
        response = await self._answer(request)
        self._count(request, status=response.status, applied=response.status < 400, fault=fault)
        return response

    async def _prepare(self, request: _Request) -> None:
        """Read the body, and determine what the request concerns before the work changes that."""
        if request.http.can_read_body:
            request.body = await request.http.read()
        target = request.target
        body = _loose(request.body) if request.verb in ("create", "delete", "deletecollection") else {}
        if target.subresource == "eviction" or request.verb.startswith("delete"):
            options = body.get("deleteOptions") if target.subresource else body
            request.dry_run = request.dry_run or (options or {}).get("dryRun") == ["All"]
        metadata = body.get("metadata")
        request.name = target.name or str(metadata.get("name", "") if isinstance(metadata, dict) else "")
        found = self._present(target) if target.resource in concerned_nodes.OF_NODES else None
        request.node = concerned_nodes.node_of(target.resource, request.name, found=found, body=body)

    def _present(self, target: paths.Target) -> Object | None:
        return self.objects.find(target.resource, target.namespace or "", target.name)

    def _count(self, request: _Request, *, status: int, applied: bool, fault: str = "") -> None:
        target = request.target
        key = calls.CallKey(
            verb=request.verb,
            resource=target.plural,
            node=request.node,
            status=status,
            dry_run=request.dry_run,
            applied=applied and not request.dry_run,
        )
        call = calls.CallRecord(
            at=self.objects.now(),
            key=key,
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
            return responses.error_response(error)
        except Exception as error:  # the client gets the error that an API server sends for a failure of its own
            log.exception("%s %s", request.http.method, request.http.path_qs)
            return responses.error_response(errors.internal(repr(error)))

    async def _carried_out(self, request: _Request) -> web.StreamResponse:
        target = request.target
        if target.resource is not resources.SELF_ACCESS_REVIEWS:  # everybody may ask for their own permissions
            self.access.authorize(
                request.who,
                request.verb,
                group=target.group,
                plural=target.plural,
                name=target.name,
                namespace=target.namespace,
            )
        if target.subresource not in ("", "status"):
            return self._subresource(request)
        if not target.resource.stored:
            return self._review(request)
        if target.resource is resources.BUDGETS:
            self.guard.settle()
        if request.verb == "watch":
            return await self.reader.watch(request.http, target)
        return _VERBS[request.verb](self, request)

    def _get(self, request: _Request) -> web.Response:
        return self.reader.get(request.http, request.target)

    def _list(self, request: _Request) -> web.Response:
        return self.reader.list(request.http, request.target)

    def _create(self, request: _Request) -> web.Response:
        created = self.writer.create(request.target, _decoded(request), dry_run=request.dry_run)
        return self.reader.shown(request.http, request.target, created, 201)

    def _update(self, request: _Request) -> web.Response:
        updated = self.writer.replace(request.target, _decoded(request), dry_run=request.dry_run)
        return self.reader.shown(request.http, request.target, updated)

    def _patch(self, request: _Request) -> web.Response:
        media = request.http.content_type
        if media not in (writer.JSON_PATCH, writer.MERGE_PATCH, writer.STRATEGIC_PATCH):
            raise errors.unsupported_media((writer.JSON_PATCH, writer.MERGE_PATCH, writer.STRATEGIC_PATCH))
        patched = self.writer.patch(request.target, media, _json_of(request.body), dry_run=request.dry_run)
        return self.reader.shown(request.http, request.target, patched)

    def _delete(self, request: _Request) -> web.Response:
        options = _json_of(request.body) if request.body else {}
        for name in ("gracePeriodSeconds", "propagationPolicy"):
            if name in request.http.query:
                value: str | int = request.http.query[name]
                options = {**options, name: int(value) if name == "gracePeriodSeconds" else value}
        deleted = self.writer.delete(request.target, options, dry_run=request.dry_run)
        if deleted.get("kind") == "Status":
            return responses.json_response(deleted)
        return self.reader.shown(request.http, request.target, deleted)

    def _delete_collection(self, request: _Request) -> web.Response:
        selection = self.reader.selection(request.http, request.target)
        options = _decoded(request) if request.body else {}
        deleted = self.writer.delete_collection(request.target, selection, options, dry_run=request.dry_run)
        return self.reader.shown_all(request.http, request.target, deleted)

    def _subresource(self, request: _Request) -> web.Response:
        """Subresources that have bodies of their own."""
        target = request.target
        if request.verb != ("get" if target.subresource == "log" else "create"):
            raise errors.method_not_allowed()
        if target.subresource == "log":
            pod = self.objects.get("Pod", target.namespace or "", target.name)
            return web.Response(body=self.logs.read(pod, request.http.query), content_type="text/plain")
        body = _decoded(request)
        if target.subresource == "eviction":
            return responses.json_response(self.writer.evict(target, body, dry_run=request.dry_run), 201)
        if target.subresource == "binding":
            return responses.json_response(self.writer.bind(target, body, dry_run=request.dry_run), 201)
        return responses.json_response(self.access.token_request(body, target.namespace or "", target.name), 201)

    def _review(self, request: _Request) -> web.Response:
        body = _decoded(request)
        if request.target.resource is resources.TOKEN_REVIEWS:
            return responses.json_response(self.access.token_review(body), 201)
        who = request.who if request.target.resource is resources.SELF_ACCESS_REVIEWS else None
        return responses.json_response(self.access.access_review(body, who=who), 201)


_VERBS: Mapping[str, Callable[[Handler, _Request], web.Response]] = {
    "get": Handler._get,
    "list": Handler._list,
    "create": Handler._create,
    "update": Handler._update,
    "patch": Handler._patch,
    "delete": Handler._delete,
    "deletecollection": Handler._delete_collection,
}


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
    """The body of a write. Raises ``ApiError`` 415 for anything but JSON, 400 for anything but an object."""
    if request.http.content_type not in ("application/json", "application/octet-stream"):
        raise errors.unsupported_media(["application/json"])
    body = _json_of(request.body)
    if not isinstance(body, dict):
        raise errors.bad_request("the body of the request is not an object")
    return body


def _loose(body: bytes) -> Object:
    """The object in a body, empty if there is none. The log uses it and must not fail."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
