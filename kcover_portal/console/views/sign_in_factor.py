"""The second step of a sign-in: a second factor, or adding one; and sign-in with a passkey alone."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import User
from kcover_portal.accounts.services import passkeys, pending_sign_ins, second_factors, throttle
from kcover_portal.console import admission, factor_setup
from kcover_portal.console.access import later, page_of_portal
from kcover_portal.console.forms import second_factors as forms, sign_in
from kcover_portal.lib import localization

P = ParamSpec("P")
PendingView = Callable[Concatenate[HttpRequest, User, P], HttpResponse]


def pending(view: PendingView[P]) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Admits only a browser that has just given the right password, and passes the person to the view."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        user = pending_sign_ins.person(request.session, now=timezone.now())
        if user is None:
            return redirect("console:sign-in")
        return view(request, user, *args, **kwargs)

    return guarded


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "POST"])
@pending
def factor(request: HttpRequest, user: User) -> HttpResponse:
    """Ask for the second factor (GET), then sign in (POST)."""
    form = forms.Factor(request.POST or None)
    refusal: services.RetryLater | None = None
    if request.method == "POST" and form.is_valid():
        given = form.given()
        assert given is not None
        device = services.device_of(request.COOKIES.get(sign_in.DEVICE_COOKIE, ""), user.username)
        try:
            used = second_factors.check(
                user,
                given,
                attempt=throttle.of_second_factor(user, device=device),
                site=passkeys.site_of(request),
                address=services.client_address(request),
                now=timezone.now(),
            )
        except services.Refused as error:
            refusal = error if isinstance(error, services.RetryLater) else None
            form.add_error("factor_code", localization.say(error.reason))
        else:
            target = pending_sign_ins.target(request.session)
            sign_on = pending_sign_ins.sign_on(request.session)
            admission.enter(request, user, factor=used, by_password=True, sign_on=sign_on)
            return admission.keep(redirect(target), user)
    context = {"form": form, "person": user, "passkeys": user.passkeys.exists()}
    response = render(request, "console/pages/sign_in_factor.html", context, status=422 if form.errors else 200)
    return later(response, refusal) if refusal else response


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "POST"])
@pending
def enrol(request: HttpRequest, user: User) -> HttpResponse:
    """Add the second factor that the person's role needs (GET shows how), then sign in (POST)."""
    if queries.has_second_factor(user):  # added in another window meanwhile
        return redirect("console:sign-in-factor")
    setup = factor_setup.read(request, user, now=timezone.now())
    if setup.added:
        target = pending_sign_ins.target(request.session)
        sign_on = pending_sign_ins.sign_on(request.session)
        admission.enter(request, user, factor=setup.added, by_password=True, sign_on=sign_on)
        codes = second_factors.after_first(user, keep_session=request.session.session_key or "", now=timezone.now())
        shown = {"codes": codes, "target": target, "base": "console/base.html"}
        return admission.keep(render(request, "console/pages/recovery_codes.html", shown), user)
    context = {"setup": setup, "person": user}
    return render(request, "console/pages/sign_in_enrol.html", context, status=422 if setup.refused else 200)


@sensitive_post_parameters()
@never_cache
@require_POST
def with_passkey(request: HttpRequest) -> HttpResponse:
    if request.user.is_authenticated:
        return redirect("console:home")
    answer = forms.Factor(request.POST)
    given = answer.given() if answer.is_valid() else None
    target = page_of_portal(request, request.POST.get("next", "")) or reverse("console:home")
    form = sign_in.SignIn(request)
    if given is None or given.passkey is None:
        return redirect("console:sign-in")
    try:
        user = services.check_passkey(
            given.passkey,
            site=passkeys.site_of(request),
            address=services.client_address(request),
            now=timezone.now(),
        )
    except services.Refused as error:
        context = {"form": form, "next": target, "problem": localization.say(error.reason), **admission.ways_in()}
        response = render(request, "console/pages/sign_in.html", context, status=422)
        return later(response, error) if isinstance(error, services.RetryLater) else response
    admission.enter(request, user, factor=second_factors.PASSKEY, by_password=False)
    return admission.keep(redirect(target), user)


@never_cache
@require_GET
def passkey_options(request: HttpRequest, purpose: str) -> HttpResponse:
    """The browser's options for ``purpose``: register, sign-in or confirm. The challenge is not stored."""
    now = timezone.now()
    user = request.user if isinstance(request.user, User) else pending_sign_ins.person(request.session, now=now)
    if purpose == passkeys.SIGN_IN:
        user = None
    elif user is None or purpose not in (passkeys.REGISTER, passkeys.CONFIRM):
        raise Http404
    return JsonResponse(passkeys.options(purpose, user, passkeys.site_of(request), now=now))
