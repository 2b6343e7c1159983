"""Rejects NUL characters in request paths."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

Answer = Callable[[HttpRequest], HttpResponse]


def without_nul(answer: Answer) -> Answer:
    """Middleware: a NUL in the path becomes what no name holds either, and is not found by whichever page is asked.

    PostgreSQL does not take a NUL even in a question.
    """

    def look(request: HttpRequest) -> HttpResponse:
        request.path_info = request.path_info.replace("\0", "\N{REPLACEMENT CHARACTER}")
        return answer(request)

    return look
