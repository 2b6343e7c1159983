"""Errors as RFC 9457 ``application/problem+json``.

Each document has a stable ``code`` for programs, and a ``detail`` for people in the language of the request
(``Accept-Language``). A refusal with a reason has the reason's code and ``params``. ``errors`` has the same of each
field.
"""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions, views
from rest_framework.response import Response

from kcover import reasons
from kcover.repairs import mail_replies
from kcover_portal.accounts import services as accounts
from kcover_portal.api import body_parsers, http_errors
from kcover_portal.encryption import KeysUnusable, SecretUnreadable
from kcover_portal.fleet.services import node_selection
from kcover_portal.lib import localization
from kcover_portal.lib.errors import FieldError, FieldErrors, Refused
from kcover_portal.policies import services as policies
from kcover_portal.policies.services import yaml_reader
from kcover_portal.rescue.decide import policy_tries
from kcover_portal.runtime.services import concurrency_limits

MEDIA_TYPE = "application/problem+json"
BODY = "body"  # the field of an error that concerns the whole body


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """Returns the problem document of an exception; None for an unexpected one, which Django handles."""
    if isinstance(error, policies.InvalidPolicies):
        return unreadable(error.problems)
    if isinstance(error, FieldErrors) or (isinstance(error, FieldError) and not error.conflict):
        views.set_rollback()
        return invalid(error.errors if isinstance(error, FieldErrors) else (error,))
    known = _known(error, context)
    response = views.exception_handler(known, context)
    if response is None:
        return None
    if isinstance(known, exceptions.ValidationError):
        answer = _invalid(list(_flat(response.data)))
    else:
        detail = str(response.data["detail"])
        reason = known.reason if isinstance(known, http_errors.HttpError) else None
        answer = problem(response.status_code, detail, code=_code(known), reason=reason)
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


def invalid(found: tuple[FieldError, ...]) -> Response:
    """Returns a 400 that names each invalid field."""
    return _invalid(
        [
            {"field": error.field or BODY, **error.reason.to_json(), "reason": localization.say(error.reason)}
            for error in found
        ]
    )


def unreadable(found: tuple[yaml_reader.Problem, ...]) -> Response:
    """Returns a 422 for an invalid policy text, with the line of each error."""
    errors = []
    for wrong in found:
        message = localization.say(wrong.reason)
        place = reasons.of("problem_at", line=wrong.line, column=wrong.column, problem=message)
        path = wrong.path or "text"
        errors.append({**wrong.to_json(), "message": message, "field": path, "reason": localization.say(place)})
    reason = reasons.of("policy_invalid_once") if len(errors) == 1 else reasons.of("policy_invalid", count=len(errors))
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    return problem(status, localization.say(reason), code="policy_invalid", errors=errors)


def _invalid(errors: list[dict[str, Any]]) -> Response:
    detail = "; ".join(f"{error['field']}: {error['reason']}" for error in errors)
    return problem(HTTPStatus.BAD_REQUEST, detail, code="invalid", errors=errors)


def _known(error: Exception, context: dict[str, Any]) -> Exception:
    """Converts an error of a service, of Django or of DRF to one with a reason, if there is one for it."""
    if isinstance(error, accounts.RetryLater | concurrency_limits.Busy | policy_tries.TryRefused):
        status = HTTPStatus.TOO_MANY_REQUESTS
        return http_errors.RetryAfter(error.reason, status=status, retry_after=error.retry_after)
    if isinstance(error, Refused):
        return http_errors.HttpError(error.reason, status=error.status)
    if isinstance(error, mail_replies.ReplyInvalid):
        return http_errors.Unprocessable(error.reason)
    if isinstance(error, FieldError):
        return http_errors.Conflict(error.reason)
    if isinstance(error, node_selection.Unanswered):
        status = HTTPStatus.SERVICE_UNAVAILABLE
        return http_errors.RetryAfter(error.reason, status=status, retry_after=error.retry_after or 5)
    if isinstance(error, SecretUnreadable | KeysUnusable):
        return http_errors.RetryAfter(error.reason, status=HTTPStatus.SERVICE_UNAVAILABLE, retry_after=60)
    if isinstance(error, Http404):
        return http_errors.NotFound(reasons.of("not_found"))
    if isinstance(error, PermissionDenied):
        return exceptions.PermissionDenied()
    if isinstance(error, exceptions.UnsupportedMediaType):
        return http_errors.UnsupportedMediaType(_media_types(context))
    return error


def _media_types(context: dict[str, Any]) -> reasons.Reason:
    request = context["request"]
    accepted = reasons.either(body_parsers.taken(request))
    return reasons.of("unsupported_media_type", media_type=request.content_type, accepted=accepted)


def _code(error: Exception) -> str:
    codes = error.get_codes() if isinstance(error, exceptions.APIException) else None
    return codes if isinstance(codes, str) else "error"


def _flat(data: Any, path: str = "") -> Iterator[dict[str, str]]:
    """Yields DRF's nested errors as a flat list of field, code and reason."""
    if isinstance(data, dict):
        for key, inner in data.items():
            yield from _flat(inner, path if key == "non_field_errors" else f"{path}.{key}" if path else str(key))
    elif isinstance(data, list):
        for index, inner in enumerate(data):
            yield from _flat(inner, f"{path}.{index}" if isinstance(inner, dict) else path)
    else:
        yield {"field": path or BODY, "code": getattr(data, "code", None) or "invalid", "reason": str(data)}
