"""The id of a request, in its log lines and in the response's header ``X-Request-ID``."""

import re
import uuid
from collections.abc import Callable
from typing import Final

from django.http import HttpRequest, HttpResponse

from kcover_portal.config import log_context

HEADER: Final = "X-Request-ID"
_WELL_FORMED: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def identify(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware that keeps the id of a well-formed ``X-Request-ID``, which an Ingress may set, or makes one."""

    def middleware(request: HttpRequest) -> HttpResponse:
        named = request.headers.get(HEADER, "")
        made = named if _WELL_FORMED.fullmatch(named) else uuid.uuid4().hex
        with log_context.bound(request=made):
            response = get_response(request)
        response.headers[HEADER] = made
        return response

    return middleware
