"""Refusals of REST, one class per HTTP status. Each has a reason, whose code and parameters go into the answer."""

import math
from http import HTTPStatus

from rest_framework import exceptions

from kcover import reasons
from kcover_portal.lib import localization


class HttpError(exceptions.APIException):
    """A request that is refused. ``detail`` is the sentence of ``reason`` in the language of the request."""

    def __init__(self, reason: reasons.Reason, *, status: HTTPStatus | None = None) -> None:
        super().__init__(localization.say(reason), reason.code)
        self.reason = reason
        if status is not None:
            self.status_code = status


class BadRequest(HttpError):
    """400: the body cannot be parsed."""

    status_code = HTTPStatus.BAD_REQUEST


class Unauthorized(HttpError, exceptions.AuthenticationFailed):
    """401: the credential is not accepted."""

    status_code = HTTPStatus.UNAUTHORIZED


class Forbidden(HttpError):
    """403: the caller may not do this."""

    status_code = HTTPStatus.FORBIDDEN


class NotFound(HttpError):
    """404: the object does not exist, or the caller may not see it."""

    status_code = HTTPStatus.NOT_FOUND


class Conflict(HttpError):
    """409: the request is well formed but does not fit the current state."""

    status_code = HTTPStatus.CONFLICT


class PreconditionFailed(HttpError):
    """412: ``If-Match`` names a version that is no longer active."""

    status_code = HTTPStatus.PRECONDITION_FAILED


class TooLarge(HttpError):
    """413: the body exceeds its size limit."""

    status_code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class UnsupportedMediaType(HttpError):
    """415: the endpoint does not accept bodies of this type."""

    status_code = HTTPStatus.UNSUPPORTED_MEDIA_TYPE


class Unprocessable(HttpError):
    """422: the body is well formed but its content is rejected."""

    status_code = HTTPStatus.UNPROCESSABLE_ENTITY


class RetryAfter(HttpError):
    """A request that may succeed after ``retry_after`` seconds; ``status`` is 429 or 503."""

    def __init__(self, reason: reasons.Reason, *, status: HTTPStatus, retry_after: float) -> None:
        super().__init__(reason, status=status)
        self.wait = math.ceil(retry_after)  # DRF sends it as Retry-After
