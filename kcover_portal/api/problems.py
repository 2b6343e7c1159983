"""Every refusal as RFC 9457 ``application/problem+json``, naming field and reason."""

import math
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions, views
from rest_framework.response import Response

from kcover_portal.accounts import services as accounts
from kcover_portal.api import parsing
from kcover_portal.fleet.services import checking
from kcover_portal.incidents import services as incidents
from kcover_portal.policies import services as policies
from kcover_portal.policies.services import source
from kcover_portal.rescue import services as rescue

MEDIA_TYPE = "application/problem+json"


class Conflict(exceptions.APIException):
    """The request is well formed, and things stand so that it cannot be met."""

    status_code = HTTPStatus.CONFLICT
    default_detail = "As things stand this cannot be done."
    default_code = "conflict"


class PreconditionFailed(exceptions.APIException):
    """``If-Match`` names a version that is no longer the one in force."""

    status_code = HTTPStatus.PRECONDITION_FAILED
    default_code = "precondition_failed"


class NotAnswered(exceptions.APIException):
    """A cluster that would have to say so does not answer; ``retry_after`` seconds make it worth asking again."""

    status_code = HTTPStatus.SERVICE_UNAVAILABLE
    default_code = "not_answered"

    def __init__(self, detail: str, *, retry_after: float | None) -> None:
        super().__init__(detail)
        self.wait = math.ceil(retry_after or 5)  # DRF makes it the header Retry-After


class Unprocessable(exceptions.APIException):
    """The body is well formed and its content is refused."""

    status_code = HTTPStatus.UNPROCESSABLE_ENTITY
    default_code = "unprocessable"


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """Translates what a view or service raised; None lets an unexpected error go on to Django."""
    if isinstance(error, policies.Invalid):
        return unreadable(error.problems)
    response = views.exception_handler(_known(error), context)
    if response is None:
        return None
    if isinstance(error, exceptions.UnsupportedMediaType):
        response.data = {"detail": f"{error.detail} Send {' or '.join(parsing.taken(context['request']))}."}
    errors = list(_flat(response.data)) if isinstance(error, exceptions.ValidationError) else []
    detail = _detail(response.data) if not errors else "; ".join(f"{one['field']}: {one['reason']}" for one in errors)
    answer = problem(response.status_code, detail, errors=errors)
    for name in ("Allow", "WWW-Authenticate", "Retry-After"):
        if name in response.headers:
            answer.headers[name] = response.headers[name]
    return answer


def problem(status: int, detail: str, *, errors: list[dict[str, Any]] | None = None) -> Response:
    """One problem document."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "detail": detail,
    }
    if errors:
        body["errors"] = errors
    return Response(body, status=status, content_type=MEDIA_TYPE)


def unreadable(found: tuple[source.Problem, ...]) -> Response:
    """A policy text that cannot be applied: every mistake with its line."""
    errors = [
        {
            "line": one.line,
            "column": one.column,
            "path": one.path,
            "message": one.message,
            "field": one.path or "text",
            "reason": f"line {one.line}, column {one.column}: {one.message}",
        }
        for one in found
    ]
    mistakes = "one mistake" if len(errors) == 1 else f"{len(errors)} mistakes"
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"The text has {mistakes}; nothing was applied.", errors=errors)


def _known(error: Exception) -> Exception:
    """A service's refusal as the HTTP error it amounts to."""
    if isinstance(error, rescue.Refused | incidents.Refused | checking.Refused):
        return Conflict(str(error))
    if isinstance(error, policies.Conflict):
        return PreconditionFailed(str(error))
    if isinstance(error, policies.NotFound):
        return exceptions.NotFound(str(error))
    if isinstance(error, accounts.Refused):
        return Unprocessable(str(error))
    if isinstance(error, Http404):
        return exceptions.NotFound(str(error) or None)
    if isinstance(error, PermissionDenied):
        return exceptions.PermissionDenied(str(error) or None)
    return error


def _detail(data: Any) -> str:
    return str(data["detail"]) if isinstance(data, dict) and "detail" in data else str(data)


def _flat(data: Any, path: str = "") -> Iterator[dict[str, str]]:
    """DRF's nested errors as one list of field and reason."""
    if isinstance(data, dict):
        for key, inner in data.items():
            yield from _flat(inner, path if key == "non_field_errors" else f"{path}.{key}" if path else str(key))
    elif isinstance(data, list):
        for index, inner in enumerate(data):
            yield from _flat(inner, f"{path}.{index}" if isinstance(inner, dict) else path)
    else:
        yield {"field": path or "body", "reason": str(data)}
