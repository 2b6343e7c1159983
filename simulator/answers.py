"""Requests and responses of the HTTP API below ``/sim``: JSON, also for errors."""

import json
from typing import Any

from aiohttp import web


async def body(request: web.Request) -> Any:
    """The decoded body. Raises HTTP 400 if the body is not JSON."""
    try:
        return json.loads(await request.read() or b"{}")
    except ValueError as error:
        reason = json.dumps({"field": "body", "reason": f"is not JSON: {error}"})
        raise web.HTTPBadRequest(text=reason, content_type="application/json") from error


def invalid(field: str, reason: str) -> web.Response:
    """HTTP 400: what is wrong with a field."""
    return document({"field": field, "reason": reason}, status=400)


def document(content: dict[str, Any], *, status: int = 200) -> web.Response:
    """A response with a JSON object."""
    return web.json_response(content, status=status)
