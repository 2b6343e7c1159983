"""Errors as RFC 9457 ``application/problem+json``.

Each document has a stable ``code`` beside its ``detail``: programs compare the code, people read the detail. Codes of
single fields stand in ``errors``. A refusal that carries a reason has the reason's code and ``params``.
"""

import math
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions, views
from rest_framework.response import Response

from kcover import reasons
from kcover_portal.accounts import services as accounts
from kcover_portal.api import body_parsers
from kcover_portal.checks import services as check_runs
from kcover_portal.errors import FieldError
from kcover_portal.incidents import services as incidents
from kcover_portal.policies import services as policies
from kcover_portal.policies.services import source
from kcover_portal.rescue import services as rescue

MEDIA_TYPE = "application/problem+json"


class Conflict(exceptions.APIException):
    """409: the request is well formed but does not fit the current state."""

    status_code = HTTPStatus.CONFLICT
    default_detail = "Not possible in the current state."
    default_code = "conflict"


class PreconditionFailed(exceptions.APIException):
    """412: ``If-Match`` names a version that is no longer active."""

    status_code = HTTPStatus.PRECONDITION_FAILED
    default_code = "precondition_failed"


class NotAnswered(exceptions.APIException):
    """503: a cluster that the answer depends on does not respond; retry after ``retry_after`` seconds."""

    status_code = HTTPStatus.SERVICE_UNAVAILABLE
    default_code = "cluster_unavailable"

    def __init__(self, detail: str, *, retry_after: float | None) -> None:
        super().__init__(detail)
        self.wait = math.ceil(retry_after or 5)  # DRF makes it the header Retry-After


class Unprocessable(exceptions.APIException):
    """422: the body is well formed but its content is rejected."""

    status_code = HTTPStatus.UNPROCESSABLE_ENTITY
    default_code = "unprocessable"


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """The problem document of an exception; None for an unexpected one, which Django then handles."""
    if isinstance(error, policies.Invalid):
        return unreadable(error.problems)
    reason = error.reason if isinstance(error, reasons.ExplainedError) else None
    known = _known(error)
    response = views.exception_handler(known, context)
    if response is None:
        return None
    if isinstance(error, exceptions.UnsupportedMediaType):
        response.data = {"detail": f"{error.detail} Send {' or '.join(body_parsers.taken(context['request']))}."}
    errors = list(_flat(response.data)) if isinstance(known, exceptions.ValidationError) else []
    detail = _detail(response.data) if not errors else "; ".join(f"{one['field']}: {one['reason']}" for one in errors)
    answer = problem(response.status_code, detail, code=_code(known), errors=errors, reason=reason)
    for name in ("Allow", "WWW-Authenticate", "Retry-After"):
        if name in response.headers:
            answer.headers[name] = response.headers[name]
    return answer


def problem(
    status: int,
    detail: str,
    *,
    code: str,
    errors: list[dict[str, Any]] | None = None,
    reason: reasons.Reason | None = None,
) -> Response:
    """A problem document; ``code`` is a stable word in snake case.

    ``reason``: why a request was refused; its code replaces ``code``, and its parameters stand beside it.
    """
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "code": code,
        "detail": detail,
    }
    if errors:
        body["errors"] = errors
    if reason is not None:
        body |= reason.to_json()
    return Response(body, status=status, content_type=MEDIA_TYPE)


def unreadable(found: tuple[source.Problem, ...]) -> Response:
    """422 for a policy text that cannot be applied, with the line of every error."""
    errors = [
        {
            "line": one.line,
            "column": one.column,
            "path": one.path,
            "message": one.message,
            "field": one.path or "text",
            "code": "policy",
            "reason": f"line {one.line}, column {one.column}: {one.message}",
        }
        for one in found
    ]
    number = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    detail = f"The text has {number}. Nothing was applied."
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, code="policy_invalid", errors=errors)


def _known(error: Exception) -> Exception:
    """The HTTP error of a service's refusal."""
    if isinstance(error, rescue.RescueRefused | incidents.CloseRefused | check_runs.CheckRunRefused):
        return Conflict(str(error))
    if isinstance(error, FieldError) and error.code == "in_use":
        return Conflict(str(error))
    if isinstance(error, FieldError):
        return exceptions.ValidationError({error.field: [str(error)]}, code=error.code)
    if isinstance(error, policies.Conflict):
        return PreconditionFailed(str(error), code="revision_changed")
    if isinstance(error, policies.NotFound):
        return exceptions.NotFound(str(error))
    if isinstance(error, accounts.Refused):
        return Unprocessable(str(error))
    if isinstance(error, Http404):
        return exceptions.NotFound(str(error) or None)
    if isinstance(error, PermissionDenied):
        return exceptions.PermissionDenied(str(error) or None)
    return error


def _code(error: Exception) -> str:
    """The code of an HTTP error; what is wrong with single fields has codes of its own."""
    if isinstance(error, exceptions.ValidationError):
        return "invalid"
    codes = error.get_codes() if isinstance(error, exceptions.APIException) else None
    return codes if isinstance(codes, str) else "error"


def _detail(data: Any) -> str:
    return str(data["detail"]) if isinstance(data, dict) and "detail" in data else str(data)


def _flat(data: Any, path: str = "") -> Iterator[dict[str, str]]:
    """DRF's nested errors as one list of field, code and reason."""
    if isinstance(data, dict):
        for key, inner in data.items():
            yield from _flat(inner, path if key == "non_field_errors" else f"{path}.{key}" if path else str(key))
    elif isinstance(data, list):
        for index, inner in enumerate(data):
            yield from _flat(inner, f"{path}.{index}" if isinstance(inner, dict) else path)
    else:
        yield {"field": path or "body", "code": getattr(data, "code", None) or "invalid", "reason": str(data)}
