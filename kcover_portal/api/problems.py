"""Errors as RFC 9457 ``application/problem+json``.

Each document has a stable ``code`` for programs and a ``detail`` for people. ``errors`` has the codes of single fields.
A refusal with a reason has the reason's code and ``params``.
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
from kcover_portal.fleet.services import node_selection
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
    """503: a cluster that the response depends on does not answer; retry after ``retry_after`` seconds."""

    status_code = HTTPStatus.SERVICE_UNAVAILABLE
    default_code = "cluster_unavailable"

    def __init__(self, detail: str, *, retry_after: float | None) -> None:
        super().__init__(detail)
        self.wait = math.ceil(retry_after or 5)  # DRF sends it as Retry-After


class Unprocessable(exceptions.APIException):
    """422: the body is well formed but its content is rejected."""

    status_code = HTTPStatus.UNPROCESSABLE_ENTITY
    default_code = "unprocessable"


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """Returns the problem document of an exception; None for an unexpected one, which Django handles."""
    if isinstance(error, policies.Invalid):
        return unreadable(error.problems)
    known = _known(error)
    response = views.exception_handler(known, context)
    if response is None:
        return None
    if isinstance(error, exceptions.UnsupportedMediaType):
        response.data = {"detail": f"{error.detail} Send {' or '.join(body_parsers.taken(context['request']))}."}
    errors = list(_flat(response.data)) if isinstance(known, exceptions.ValidationError) else []
    reason = error.reason if isinstance(error, reasons.ExplainedError) else None
    if errors and reason is not None:  # of the field, not of the request
        errors, reason = [{**errors[0], **reason.to_json()}], None
    detail = _detail(response.data) if not errors else "; ".join(f"{e['field']}: {e['reason']}" for e in errors)
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
    """Returns a problem document. ``code`` is a stable identifier in snake case.

    ``reason``: why the request was refused. Its code replaces ``code``, and its parameters are added.
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
    """Returns a 422 for an invalid policy text, with the line of each error."""
    errors = [
        {
            **wrong.to_json(),
            "field": wrong.path or "text",
            "reason": f"line {wrong.line}, column {wrong.column}: {wrong.message}",
        }
        for wrong in found
    ]
    number = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    detail = f"The text has {number}. Nothing was applied."
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, code="policy_invalid", errors=errors)


def _known(error: Exception) -> Exception:
    """Converts an error of a service to an HTTP error."""
    if isinstance(error, rescue.RescueRefused | incidents.CloseRefused | check_runs.CheckRunRefused):
        return Conflict(str(error))
    if isinstance(error, FieldError) and error.conflict:
        return Conflict(str(error))
    if isinstance(error, FieldError):
        return exceptions.ValidationError({error.field: [str(error)]})
    if isinstance(error, policies.Conflict):
        return PreconditionFailed(str(error), code="revision_changed")
    if isinstance(error, policies.NotFound):
        return exceptions.NotFound(str(error))
    if isinstance(error, accounts.Refused):
        return Unprocessable(str(error))
    if isinstance(error, node_selection.Unanswered):
        return NotAnswered(str(error), retry_after=error.retry_after)
    if isinstance(error, Http404):
        return exceptions.NotFound(str(error) or None)
    if isinstance(error, PermissionDenied):
        return exceptions.PermissionDenied(str(error) or None)
    return error


def _code(error: Exception) -> str:
    """Returns the code of an HTTP error; single fields have their own codes."""
    if isinstance(error, exceptions.ValidationError):
        return "invalid"
    codes = error.get_codes() if isinstance(error, exceptions.APIException) else None
    return codes if isinstance(codes, str) else "error"


def _detail(data: Any) -> str:
    return str(data["detail"]) if isinstance(data, dict) and "detail" in data else str(data)


def _flat(data: Any, path: str = "") -> Iterator[dict[str, str]]:
    """Yields DRF's nested errors as a flat list of field, code and reason."""
    if isinstance(data, dict):
        for key, inner in data.items():
            yield from _flat(inner, path if key == "non_field_errors" else f"{path}.{key}" if path else str(key))
    elif isinstance(data, list):
        for index, inner in enumerate(data):
            yield from _flat(inner, f"{path}.{index}" if isinstance(inner, dict) else path)
    else:
        yield {"field": path or "body", "code": getattr(data, "code", None) or "invalid", "reason": str(data)}
