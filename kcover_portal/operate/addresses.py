"""Cleans requests: NUL characters and a last slash in paths, and the scheme that a client claims."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from kcover_portal.accounts.services import proxies

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

REST = "/api/v1/"

Handler = Callable[[HttpRequest], HttpResponse]


def without_nul(get_response: Handler) -> Handler:
    """Middleware that replaces NUL characters in the path, because PostgreSQL rejects them even in queries.

    The replacement occurs in no name, so the page answers 404.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        request.path_info = request.path_info.replace("\0", REPLACEMENT)
        return get_response(request)

    return middleware


def without_last_slash(get_response: Handler) -> Handler:
    """Middleware that accepts REST paths with a slash at the end, of any method. No path of REST has one."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if request.path_info.startswith(REST) and request.path_info != REST:
            request.path_info = request.path_info.removesuffix("/")
            request.path = request.path.removesuffix("/")
        return get_response(request)

    return middleware


def without_forged_scheme(get_response: Handler) -> Handler:
    """Middleware that accepts X-Forwarded-Proto of trusted proxies, and of a Unix socket, which has no address."""

    def middleware(request: HttpRequest) -> HttpResponse:
        peer = request.META.get("REMOTE_ADDR", "")
        if peer and not proxies.is_trusted(peer):
            request.META.pop("HTTP_X_FORWARDED_PROTO", None)
        return get_response(request)

    return middleware
