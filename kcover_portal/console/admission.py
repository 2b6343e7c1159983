"""The last steps of every sign-in: the second factor, then the session and its cookies."""

from django.conf import settings
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone, translation

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import User
from kcover_portal.accounts.services import pending_sign_ins, step_up
from kcover_portal.console.forms import sign_in

LANGUAGE_KEPT = 365 * 24 * 3600
BACKEND = "django.contrib.auth.backends.ModelBackend"


def after_password(request: HttpRequest, user: User, *, target: str) -> HttpResponse:
    """Signs the person in, or leads them to their second factor, or to adding one if they need one."""
    now = timezone.now()
    if queries.has_second_factor(user):
        pending_sign_ins.begin(request.session, user, target=target, now=now)
        return redirect("console:sign-in-factor")
    if queries.second_factor_required(user):
        pending_sign_ins.begin(request.session, user, target=target, now=now)
        return redirect("console:sign-in-enrol")
    enter(request, user, factor="", by_password=True)
    return keep(redirect(target), user)


def enter(request: HttpRequest, user: User, *, factor: str, by_password: bool) -> None:
    """Opens the person's session, on record. ``factor``: the second factor that they gave, or ""."""
    now = timezone.now()
    address = services.client_address(request)
    services.sign_in(user, factor=factor, address=address, now=now)
    request.session.pop(pending_sign_ins.KEY, None)
    login(request, user, backend=BACKEND)  # with a new session key
    request.session["address"] = address
    request.session["browser"] = request.headers.get("User-Agent", "")
    if factor:
        step_up.note(request.session, step_up.FACTOR_AT, now=now)
    if by_password:
        step_up.note(request.session, step_up.PASSWORD_AT, now=now)


def keep(response: HttpResponse, user: User) -> HttpResponse:
    """Stores the person's language, and that this browser signed in, in cookies. Returns the response."""
    response.set_cookie(
        sign_in.DEVICE_COOKIE,
        services.device_cookie(user),
        max_age=services.DEVICE_KEPT,
        path=reverse("console:sign-in"),
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    if user.language in dict(settings.LANGUAGES):
        keep_language(response, user.language)
    return response


def keep_language(response: HttpResponse, language: str) -> None:
    """Stores the language in a cookie, for the sign-in page."""
    translation.activate(language)
    response.set_cookie(
        settings.LANGUAGE_COOKIE_NAME,
        language,
        max_age=LANGUAGE_KEPT,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
