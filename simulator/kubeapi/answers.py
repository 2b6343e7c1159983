"""HTTP responses: objects, refusals, and what a client gets of a planned fault."""

from typing import Any

import msgspec
from aiohttp import web

from simulator.kubeapi import errors, faults


def as_json(body: dict[str, Any], status: int = 200) -> web.Response:
    """An object."""
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def refused(error: errors.ApiError) -> web.Response:
    """A refusal: its ``Status`` object, and what belongs into headers."""
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    if error.code == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="simulator"'
    body = msgspec.json.encode(error.status())
    return web.Response(body=body, status=error.code, content_type="application/json", headers=headers)


def suffered(
    http: web.Request, fault: faults.ApiFault, *, group: str = "", plural: str = "", name: str = ""
) -> web.Response:
    """What a client gets of a fault in the end: a refusal, or a connection that is cut without an answer."""
    if isinstance(fault.status, int):
        return refused(faults.refusal(fault.status, group=group, plural=plural, name=name))
    if http.transport is not None:
        http.transport.abort()
    return web.Response(status=500)  # never sent


def gone(http: web.Request) -> bool:
    """Whether the client has hung up."""
    return http.transport is None or http.transport.is_closing()
