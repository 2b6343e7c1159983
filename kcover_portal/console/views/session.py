"""Signing in and out, preferences, and the button that pauses everything."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth import logout
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse, reverse_lazy
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from kcover_portal.accounts import queries as accounts, services as account_services
from kcover_portal.accounts.models import User, Verb
from kcover_portal.accounts.services import oidc
from kcover_portal.console import admission, form_dialog, forms, time_zones
from kcover_portal.console.access import Request, later, page_of_portal, require, signed_in
from kcover_portal.console.forms import guard_settings, sign_in
from kcover_portal.fleet import services
from kcover_portal.fleet.services import pauses, pending_changes
from kcover_portal.runtime import queries as runtime
from kcover_portal.runtime.models import Mode
from kcover_portal.shared_reads import pack_previews

PAUSE: Mapping[str, Any] = {"page": "console/pages/pause.html", "back": reverse_lazy("console:overview")}
PAUSED: Mapping[str, Any] = {**PAUSE, "page": "console/pages/paused.html"}


class SignIn(LoginView):
    """The sign-in page. A signed-in person is redirected."""

    template_name = "console/pages/sign_in.html"
    authentication_form = sign_in.SignIn
    redirect_authenticated_user = True

    def get_redirect_url(self, request: HttpRequest | None = None) -> str:
        return page_of_portal(self.request, super().get_redirect_url())

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        return super().get_context_data(**more, **admission.ways_in())

    def form_valid(self, form: Any) -> HttpResponse:
        """Signs in, or asks for a second factor."""
        target = self.get_success_url()
        if target == reverse("console:home") and _chooses_first(form.get_user()):
            target = reverse("console:first-pack")
        return admission.after_password(self.request, form.get_user(), target=target)

    def form_invalid(self, form: Any) -> HttpResponse:
        response = super().form_invalid(form)
        return later(response, form.refusal) if form.refusal else response


def _chooses_first(user: User) -> bool:
    """Returns whether this person should choose the first policy pack of this portal."""
    return accounts.may_somewhere(user, Verb.WRITE_POLICIES) and pack_previews.is_first_choice_open()


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session; of a single sign-on, also at the provider."""
    if isinstance(request.user, User):
        account_services.sign_out(request.user, now=timezone.now())
    id_token = request.session.get("id_token", "")
    logout(request)
    address = oidc.sign_out_address(id_token)
    if address:
        # Not a redirect: the content security policy lets forms lead to this host only.
        return render(request, "console/pages/signed_out.html", {"address": address})
    return redirect("console:sign-in")


@require_POST
def preferences(request: HttpRequest) -> HttpResponse:
    """Store language and time zone with the person, and the language in a cookie for the sign-in page."""
    response = redirect(page_of_portal(request, request.POST.get("next", "")) or "/")
    user = request.user if isinstance(request.user, User) else None
    language, zone = request.POST.get("language"), request.POST.get("zone")
    if language in dict(settings.LANGUAGES):
        admission.keep_language(response, language)
        if user:
            User.objects.filter(pk=user.pk).update(language=language)
    if user and zone is not None and (zone == "" or zone in time_zones.offered()):
        User.objects.filter(pk=user.pk).update(zone=zone)
    return response


@require_http_methods(["GET", "POST"])
@signed_in
def pause(request: Request) -> HttpResponse:
    """Stop all actions on all clusters before the next call.

    The button of the page header posts no reason. Its answer is a dialog that asks for the reason afterwards.
    """
    require(request, Verb.PAUSE, None)
    form = forms.Pause(request.POST if request.method == "POST" else None)

    def do(given: dict[str, Any], now: datetime) -> HttpResponse | None:
        services.pause(cluster=None, reason=given["reason"], actor=accounts.actor(request.user), now=now)
        if given["reason"] or not request.htmx:
            return None
        return form_dialog.ask(request, forms.Act(), **PAUSED)

    return form_dialog.act(request, form, do, verb="pause", **PAUSE)


@require_http_methods(["GET", "POST"])
@signed_in
def pause_reason(request: Request) -> HttpResponse:
    """Add the reason to a pause that is in force."""
    require(request, Verb.PAUSE, None)
    form = forms.Act(request.POST or None)

    def do(given: dict[str, Any], now: datetime) -> HttpResponse | None:
        if runtime.installation().mode != Mode.PAUSED:
            form.add_error(None, _("Automation is no longer paused. Nothing was changed."))
            return form_dialog.ask(request, form, **PAUSED)
        services.pause(cluster=None, reason=given["reason"], actor=accounts.actor(request.user), now=now)
        return None

    return form_dialog.act(request, form, do, **PAUSED)


@require_http_methods(["GET", "POST"])
@signed_in
def resume(request: Request) -> HttpResponse:
    """Let the portal act again. The dialog shows the pause that it ends, and ends no other."""
    require(request, Verb.RESUME, None)
    paused = runtime.installation()
    form = guard_settings.Resume(request.POST or None, seen=pauses.seen(paused))

    def do(given: dict[str, Any], now: datetime) -> None:
        told = {"actor": accounts.actor(request.user), "reason": given["reason"], "seen": given["seen"]}
        with guard_settings.shows_the_pause_anew(form, paused):
            pending_changes.resume(None, None, may_loosen=False, now=now, **told)

    return form_dialog.act(request, form, do, step_up=True, verb="resume", paused=paused, **PAUSE)
