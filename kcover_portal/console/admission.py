"""The last steps of every sign-in: the second factor, then the session and its cookies."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import User
from kcover_portal.accounts.services import pending_sign_ins, step_up, throttle
from kcover_portal.config.oidc_settings import Oidc
from kcover_portal.console.forms import sign_in

MANY_GUESSES = throttle.LIMITS["account"].free
LANGUAGE_COOKIE_SECONDS = 365 * 24 * 3600
BACKEND = "django.contrib.auth.backends.ModelBackend"


def after_password(
    request: HttpRequest, user: User, *, target: str, sign_on: Mapping[str, Any] = pending_sign_ins.NOTHING
) -> HttpResponse:
    """Signs the person in, or leads them to their second factor, or to adding one if they need one.

    ``sign_on``: what the session keeps of a single sign-on, which stands for the password.
    """
    now = timezone.now()
    if queries.has_second_factor(user):
        pending_sign_ins.begin(request.session, user, target=target, now=now, sign_on=sign_on)
        return redirect("console:sign-in-factor")
    if queries.second_factor_required(user):
        pending_sign_ins.begin(request.session, user, target=target, now=now, sign_on=sign_on)
        return redirect("console:sign-in-enrol")
    enter(request, user, factor="", by_password=True, sign_on=sign_on)
    return keep(redirect(target), user)


def enter(
    request: HttpRequest,
    user: User,
    *,
    factor: str,
    by_password: bool,
    sign_on: Mapping[str, Any] = pending_sign_ins.NOTHING,
) -> None:
    """Opens the person's session, on record. ``factor``: the second factor that they gave, or ""."""
    now = timezone.now()
    address = services.client_address(request)
    services.sign_in(user, factor=factor, address=address, now=now, issuer=sign_on.get("issuer", ""))
    _tell_of_guesses(request, user)
    request.session.pop(pending_sign_ins.KEY, None)
    login(request, user, backend=BACKEND)  # with a new session key
    request.session.update({"identity": None, "sid": "", "id_token": "", **sign_on})
    request.session["address"] = address
    request.session["browser"] = request.headers.get("User-Agent", "")
    if factor:
        step_up.note(request.session, step_up.FACTOR_AT, now=now)
    if by_password:
        step_up.note(request.session, step_up.PASSWORD_AT, now=now)


def _tell_of_guesses(request: HttpRequest, user: User) -> None:
    """Tells the owner about wrong passwords from many networks; a few are a person's own."""
    if (count := services.guesses(user.username, now=timezone.now())) >= MANY_GUESSES:
        text = _(
            "%(count)s wrong passwords were given for your account lately. If they were not yours, choose a new"
            " password or add a passkey."
        )
        messages.warning(request, text % {"count": count})


def keep(response: HttpResponse, user: User) -> HttpResponse:
    """Stores the person's language, and that this browser signed in, in cookies. Returns the response."""
    response.set_cookie(
        sign_in.DEVICE_COOKIE,
        services.device_cookie(user),
        max_age=services.DEVICE_RETENTION,
        path=reverse("console:sign-in"),
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    if user.language in dict(settings.LANGUAGES):
        keep_language(response, user.language)
    return response


def ways_in() -> dict[str, Any]:
    """Returns what the sign-in page offers: single sign-on with its label, and passwords and passkeys."""
    client: Oidc | None = settings.KCOVER_OIDC
    if client is None:
        return {"single_sign_on": False, "passwords": True}
    return {"single_sign_on": True, "label": client.label, "passwords": client.passwords != "nobody"}


def keep_language(response: HttpResponse, language: str) -> None:
    """Stores the language in a cookie, for the sign-in page."""
    translation.activate(language)
    response.set_cookie(
        settings.LANGUAGE_COOKIE_NAME,
        language,
        max_age=LANGUAGE_COOKIE_SECONDS,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
