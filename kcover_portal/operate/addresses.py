"""Rejects NUL characters in request paths."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

Handler = Callable[[HttpRequest], HttpResponse]


def without_nul(get_response: Handler) -> Handler:
    """Middleware that replaces NUL characters in the path, because PostgreSQL rejects them even in queries.

    The replacement occurs in no name, so the page answers 404.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        request.path_info = request.path_info.replace("\0", "\N{REPLACEMENT CHARACTER}")
        return get_response(request)

    return middleware
