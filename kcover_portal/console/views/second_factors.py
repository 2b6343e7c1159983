"""The person's own second factors: add, remove, recovery codes, and giving one again before a grave action."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.services import recovery_codes, second_factors
from kcover_portal.console import factor_setup
from kcover_portal.console.access import Request, dialog, lead, page_of_portal, signed_in
from kcover_portal.console.confirmation import confirm_for_factors
from kcover_portal.lib import localization


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
@signed_in
def add(request: Request) -> HttpResponse:
    """Add an app or a passkey (GET shows both). The first one comes with recovery codes."""
    confirm_for_factors(request)
    setup = factor_setup.read(request, request.user, now=timezone.now())
    if setup.added:
        keep = request.session.session_key or ""
        codes = second_factors.after_first(request.user, keep_session=keep, now=timezone.now())
        if codes:
            return _codes(request, codes)
        messages.success(request, _("Second factor added."))
        return redirect("console:account")
    context = {
        "setup": setup,
        "person": request.user,
        "app": hasattr(request.user, "totp"),
        "base": "console/base.html",
    }
    return render(request, "console/pages/factor_new.html", context, status=422 if setup.refused else 200)


@require_http_methods(["GET", "POST"])
@signed_in
def remove_app(request: Request) -> HttpResponse:
    shown = {"title": _("Remove the authenticator app"), "address": reverse("console:app-remove")}
    return _remove(request, lambda now: second_factors.remove_totp(request.user, now=now), **shown)


@require_http_methods(["GET", "POST"])
@signed_in
def remove_passkey(request: Request, pk: int) -> HttpResponse:
    passkey = get_object_or_404(request.user.passkeys, pk=pk)
    title = _("Remove passkey %(name)s") % {"name": passkey.name}
    shown = {"title": title, "address": reverse("console:passkey-remove", args=(pk,))}
    return _remove(request, lambda now: second_factors.remove_passkey(request.user, passkey, now=now), **shown)


@require_http_methods(["GET", "POST"])
@signed_in
def new_recovery_codes(request: Request) -> HttpResponse:
    """Replace the recovery codes. The response shows the new ones once."""
    confirm_for_factors(request)
    if not queries.has_second_factor(request.user):
        return redirect("console:account")
    if request.method == "POST":
        actor = queries.actor(request.user)
        return _codes(request, recovery_codes.make(request.user, actor=actor, now=timezone.now()))
    context = {
        "title": _("New recovery codes"),
        "text": _("The new codes replace the earlier ones, which become invalid."),
        "verb": _("Create codes"),
        "icon": "key",
        "address": reverse("console:recovery-codes"),
    }
    return _ask(request, context)


def _remove(request: Request, act: Any, **shown: str) -> HttpResponse:
    confirm_for_factors(request)
    context: dict[str, Any] = {**shown, "verb": _("Remove"), "icon": "ban", "grave": True}
    if request.method == "POST":
        try:
            act(timezone.now())
        except services.Refused as error:
            return _ask(request, {**context, "problem": localization.say(error.reason)}, status=422)
        messages.success(request, _("Second factor removed."))
        return lead(request, reverse("console:account"))
    return _ask(request, context)


def _ask(request: Request, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
    context |= {"back": reverse("console:account"), "base": dialog(request)}
    return render(request, "console/pages/factor_act.html", context, status=status)


def _codes(request: Request, codes: list[str]) -> HttpResponse:
    context = {"codes": codes, "target": reverse("console:account"), "base": dialog(request)}
    return render(request, "console/pages/recovery_codes.html", context)


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
@signed_in
def confirm(request: Request) -> HttpResponse:
    """Give a second factor, or the password if there is none, then go on to ``next`` with GET."""
    wanted = request.POST.get("next") or request.GET.get("next", "")
    target = page_of_portal(request, wanted) or reverse("console:account")
    confirm_for_factors(request, target=target)
    return redirect(target)
