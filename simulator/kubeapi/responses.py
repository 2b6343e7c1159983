"""HTTP responses: objects, errors, and the outcomes of planned faults."""

from typing import Any

import msgspec
from aiohttp import web

from simulator.kubeapi import errors, faults


def json_response(body: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def error_response(error: errors.ApiError) -> web.Response:
    """The ``Status`` object of an error, with its headers."""
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    if error.code == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="simulator"'
    body = msgspec.json.encode(error.status())
    return web.Response(body=body, status=error.code, content_type="application/json", headers=headers)


def fault_response(
    http: web.Request, fault: faults.ApiFault, *, group: str = "", plural: str = "", name: str = ""
) -> web.Response:
    """The outcome of a planned fault: an error, or a connection that is cut without a response."""
    if isinstance(fault.status, int):
        return error_response(faults.refusal(fault.status, group=group, plural=plural, name=name))
    if http.transport is not None:
        http.transport.abort()
    return web.Response(status=500)  # not sent


def client_left(http: web.Request) -> bool:
    """Return whether the client has closed its connection."""
    return http.transport is None or http.transport.is_closing()
