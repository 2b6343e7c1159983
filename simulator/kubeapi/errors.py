"""Errors as the API server words them: each is a ``Status`` object with code, reason and details.

The texts follow ``k8s.io/apimachinery/pkg/api/errors``. Clients (kubectl, client-go, the portal) match on reason and
code; people read the message.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One error in one field. ``reason`` is the type of the cause, such as ``FieldValueInvalid``."""

    field: str
    reason: str
    message: str


class ApiError(Exception):
    """An error response. ``status()`` is the body, ``code`` the HTTP status, ``retry_after`` whole seconds or None."""

    def __init__(self, code: int, reason: str, message: str, *, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})

    @property
    def retry_after(self) -> int | None:
        """Seconds for the ``Retry-After`` header. Like the API server, 0 sends no header."""
        return self.details.get("retryAfterSeconds") or None

    def status(self) -> dict[str, Any]:
        """The ``Status`` object in the body."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        body["code"] = self.code
        return body


def qualified(group: str, plural: str) -> str:
    """``poddisruptionbudgets.policy``, or just ``pods`` for the core group."""
    return f"{plural}.{group}" if group else plural


def _about(group: str, kind: str, name: str) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in details.items() if value}


def not_found(group: str, plural: str, name: str) -> ApiError:
    return ApiError(
        404, "NotFound", f'{qualified(group, plural)} "{name}" not found', details=_about(group, plural, name)
    )


def no_such_resource() -> ApiError:
    """404: the group and version do not have this kind."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def method_not_allowed() -> ApiError:
    """405: the kind exists, but does not support the verb."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def already_exists(group: str, plural: str, name: str) -> ApiError:
    text = f'{qualified(group, plural)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", text, details=_about(group, plural, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(group: str, plural: str, name: str, why: str = MODIFIED) -> ApiError:
    """409: an optimistic conflict, or a precondition that does not hold."""
    text = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return ApiError(409, "Conflict", text, details=_about(group, plural, name))


def uid_conflict(group: str, kind: str, name: str, *, wanted: str, found: str) -> ApiError:
    """409: the object was deleted and created again since the caller read it.

    The message names the kind, not the plural.
    """
    why = (
        f"the UID in the precondition ({wanted}) does not match the UID in record ({found}). "
        "The object might have been deleted and then recreated"
    )
    return conflict(group, kind, name, why)


def invalid(group: str, kind: str, name: str, causes: Iterable[FieldError]) -> ApiError:
    """422 with every cause."""
    found = list(causes)
    lines = [f"{cause.field}: {cause.message}" for cause in found]
    text = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    details = _about(group, kind, name)
    details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in found]
    shown = qualified(group, kind)
    return ApiError(422, "Invalid", f'{shown} "{name}" is invalid: {text}', details=details)


def bad_request(why: str) -> ApiError:
    return ApiError(400, "BadRequest", why)


def forbidden(group: str, plural: str, name: str, why: str) -> ApiError:
    """403 for one object, or for the kind if the name is empty."""
    subject = f'{qualified(group, plural)} "{name}"' if name else qualified(group, plural)
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", details=_about(group, plural, name))


def unauthorized() -> ApiError:
    """401: no token, or an unknown one."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def unsupported_media(accepted: Iterable[str]) -> ApiError:
    """415: the format of the body is not supported."""
    return ApiError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted),
    )


def expired(why: str) -> ApiError:
    """410: the watch or the continue token is older than the history."""
    return ApiError(410, "Expired", why)


def too_large_version(wanted: int, current: int) -> ApiError:
    """504, as the watch cache responds for a resource version that does not exist yet."""
    text = f"Timeout: Too large resource version: {wanted}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(504, "Timeout", text, details={"causes": causes, "retryAfterSeconds": 1})


def too_many_requests(why: str, *, causes: Iterable[Mapping[str, str]] = (), retry_after: int = 0) -> ApiError:
    """429 with causes; ``retry_after`` in seconds, 0 for no header."""
    details: dict[str, Any] = {"causes": [dict(cause) for cause in causes]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return ApiError(429, "TooManyRequests", why, details=details)


def internal(why: str) -> ApiError:
    text = f"Internal error occurred: {why}"
    return ApiError(500, "InternalError", text, details={"causes": [{"message": why}]})
