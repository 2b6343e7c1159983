"""Access to pages: a signed-in person with a role sees only the clusters that the role covers."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from http import HTTPStatus
from typing import Concatenate, ParamSpec, Protocol, cast
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django_htmx.http import HttpResponseClientRedirect
from django_htmx.middleware import HtmxDetails

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Role, User
from kcover_portal.accounts.services import session_store
from kcover_portal.lib import localization
from kcover_portal.runtime.services import concurrency_limits

P = ParamSpec("P")


class Request(HttpRequest):
    """A request of a signed-in person, as every page gets it."""

    user: User
    session: session_store.SessionStore
    htmx: HtmxDetails


class Temporary(Protocol):
    """A refusal that ends by itself, after ``retry_after`` seconds."""

    @property
    def retry_after(self) -> int: ...


class Interruption(Exception):
    """Ends a view with this response instead of its own."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__()
        self.response = response


def signed_in(
    view: Callable[Concatenate[Request, P], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Admits only people with a role.

    Others are redirected to sign in, also from a fragment whose session ended. The answer is never cached, because one
    address serves both the page and its fragment. A view can end with an Interruption.
    """

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        person_request = cast("Request", request)
        if not request.user.is_authenticated:
            path = person_request.htmx.current_url_abs_path if person_request.htmx else request.get_full_path()
            sign_in = f"{reverse('console:sign-in')}?{urlencode({'next': path or '/'})}"
            return HttpResponseClientRedirect(sign_in) if person_request.htmx else redirect(sign_in)
        if not accounts.may_somewhere(person_request.user, Role.VIEWER):
            raise PermissionDenied(_("Your account has no role yet. Ask an administrator to assign one."))
        try:
            response = view(person_request, *args, **kwargs)
        except concurrency_limits.Busy as refusal:
            response = _busy(person_request, refusal)
        except Interruption as interruption:
            response = interruption.response
        response.headers.setdefault("Cache-Control", "private, no-store")
        patch_vary_headers(response, ("HX-Request", "Cookie"))
        return response

    return guarded


def require(request: Request, needed: str, place: accounts.Place) -> None:
    """Raises PermissionDenied, naming a role, unless the person holds the verb or role there."""
    if not accounts.may(request.user, needed, place):
        role = Role(accounts.role_with(needed))
        raise PermissionDenied(_("Requires the %(role)s role.") % {"role": role.label})


def dialog(request: Request) -> str:
    """The base template of a confirmation form: the inside of a dialog, or a page if no script runs."""
    return "console/dialog.html" if request.htmx else "console/base.html"


def place(
    request: Request, pool: concurrency_limits.ConcurrencyLimit
) -> AbstractContextManager[concurrency_limits.ConcurrencySlot]:
    """Holds one of the pool's places for the person. Raises Busy, which ``signed_in`` turns into a 429."""
    return concurrency_limits.held(pool, accounts.place_key(request.user))


def place_for_preview(request: Request) -> AbstractContextManager[object]:
    """Like ``place``, for reads of a cluster. An act (POST) needs no place: readers must not be able to stop it."""
    return nullcontext() if request.method == "POST" else place(request, concurrency_limits.CLUSTER_READS)


def _busy(request: Request, refusal: concurrency_limits.Busy) -> HttpResponse:
    """The refusal as a page, or as a fragment that loads itself again."""
    again = request.get_full_path() if request.htmx and request.method == "GET" else ""
    context = {"reason": localization.say(refusal.reason), "again": again, "wait": refusal.retry_after}
    template = "console/parts/busy.html" if request.htmx else "429.html"
    return later(render(request, template, context), refusal)


def later(response: HttpResponse, refusal: Temporary) -> HttpResponse:
    """Make the response a 429 that says when to try again."""
    response.status_code = HTTPStatus.TOO_MANY_REQUESTS
    response.headers["Retry-After"] = str(refusal.retry_after)
    return response


def page_of_portal(request: HttpRequest, wanted: str) -> str:
    """Returns ``wanted`` if it is the address of a page of this portal, else ""."""
    safe = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    return wanted if safe and wanted.startswith("/") else ""  # redirects take a text without / for a route's name


def lead(request: Request, target: str) -> HttpResponse:
    """Redirect to a page after an action, from a dialog or from a page without scripts."""
    return HttpResponseClientRedirect(target) if request.htmx else redirect(target)
