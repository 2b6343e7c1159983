"""Middleware that notes when a person uses a session, for the idle limit."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from kcover_portal.accounts.services import session_store, sessions

Handler = Callable[[HttpRequest], HttpResponse]

OF_PAGES = (
    "console:map",
    "console:trends",
    "console:node-figures",
    "console:approval-answered",
    "console:approval-pods",
)  # open pages fetch them


def note_activity(get_response: Handler) -> Handler:
    """Notes the use of the session, except by requests that an open page makes by itself."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if isinstance(request.session, session_store.SessionStore) and not _by_itself(request):
            sessions.touch(request.session, now=timezone.now())
        return response

    return middleware


def _by_itself(request: HttpRequest) -> bool:
    """Returns whether an open page fetched a region again (live.js). A person's request has another trigger."""
    if request.method != "GET":
        return False
    trigger = request.headers.get("HX-Trigger")
    refreshed = trigger is not None and trigger == request.headers.get("HX-Target")
    return refreshed or (request.resolver_match is not None and request.resolver_match.view_name in OF_PAGES)
