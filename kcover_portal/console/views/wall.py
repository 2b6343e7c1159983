"""The wallboard: a page for a screen on the wall, for people with a role or by a read-only token of kind wall."""

from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import cast

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods
from django_htmx.http import HttpResponseClientRedirect

from kcover_portal.accounts import queries as accounts, services
from kcover_portal.accounts.models import ApiToken, Role, User
from kcover_portal.console.access import Request
from kcover_portal.console.reads import mode_banner, wall as reads

COOKIE = "kcover_wall"


@never_cache
@require_http_methods(["GET", "POST"])
def wall(request: HttpRequest) -> HttpResponse:
    """The wallboard (GET), or the exchange of a token for the cookie of this page (POST).

    A script posts the token, which is behind # in the address, once. The cookie is sent to this page only, and each
    request checks its token again. A signed-in person with a role sees their own part of the fleet. The parameters
    ``cluster`` and ``pool`` narrow it; 404 for a place outside of it.
    """
    now = timezone.now()
    secret = request.POST.get("token", "").strip().rpartition("#")[2]
    if request.method == "POST":
        token = _token(request, secret, now=now)
        return _remember(redirect("console:wall"), secret, token, now=now) if token else _ended(request)
    if isinstance(request.user, User) and accounts.may_somewhere(request.user, Role.VIEWER):
        return _show(request, accounts.scope(request.user), request.user, now=now)
    if COOKIE not in request.COOKIES:
        return _entrance(request, {"opens": True})
    token = _token(request, request.COOKIES[COOKIE], now=now)
    seen = accounts.wall_scope(token) if token is not None else accounts.Scope.of()
    if token is None or seen.is_empty:
        return _ended(request)  # an owner without a role sees nothing, which must not read like "all clear"
    language = token.owner.language if token.owner else ""
    with translation.override(language or translation.get_language()):
        return _show(request, seen, token.owner, now=now)


def _token(request: HttpRequest, secret: str, *, now: datetime) -> ApiToken | None:
    """The valid token of kind wall with this secret, if it may be used from this address."""
    try:
        token = services.find_token(secret, now=now, address=services.client_address(request))
    except services.WrongAddress:
        return None
    return token if token is not None and token.kind == ApiToken.Kind.WALL else None


def _show(request: HttpRequest, seen: accounts.Scope, reader: User | None, *, now: datetime) -> HttpResponse:
    narrowed = reads.part(seen, {name: str(request.GET[name]) for name in request.GET})
    if narrowed is None:
        raise Http404
    seen, place = narrowed
    content = {
        "wall": reads.of(seen, now=now),
        "banner": mode_banner.of(seen, now=now),
        "place": place,
        "zone": reader.zone if reader else "",
    }
    part = bool(cast("Request", request).htmx)
    response = render(request, "console/parts/wall.html" if part else "console/pages/wall.html", content)
    patch_vary_headers(response, ("HX-Request", "Cookie"))
    return response


def _ended(request: HttpRequest) -> HttpResponse:
    """The token is not valid (any more). Does not say which token it was, or whether there was one."""
    response = _entrance(request, {"ended": True}, status=HTTPStatus.FORBIDDEN)
    response.delete_cookie(COOKIE, path=reverse("console:wall"), samesite="Strict")
    return response


def _entrance(request: HttpRequest, content: Mapping[str, object], *, status: int = HTTPStatus.OK) -> HttpResponse:
    """The form that takes a token; a fragment leads there."""
    if cast("Request", request).htmx:
        return HttpResponseClientRedirect(reverse("console:wall"))
    response = render(request, "console/pages/wall_link.html", dict(content), status=status)
    response.headers["X-Robots-Tag"] = "noindex"
    return response


def _remember(response: HttpResponse, secret: str, token: ApiToken, *, now: datetime) -> HttpResponse:
    response.set_cookie(
        COOKIE,
        secret,
        max_age=token.expires_at - now if token.expires_at else None,
        path=reverse("console:wall"),
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Strict",
    )
    return response
