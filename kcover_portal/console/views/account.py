"""The person's own account: password, second factors and sessions."""

from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import TotpDevice
from kcover_portal.accounts.services import recovery_codes, sessions
from kcover_portal.console import form_dialog, home_pages, time_zones
from kcover_portal.console.access import Request, lead, signed_in
from kcover_portal.console.forms import sign_in
from kcover_portal.console.views import tokens
from kcover_portal.lib.errors import FieldError


@require_GET
@signed_in
def account(request: Request) -> HttpResponse:
    """The person's second factors, API tokens, and sessions, the last used first."""
    now = timezone.now()
    live = queries.live_sessions(now).filter(user=request.user)
    shown = [(session, session.session_key == request.session.stored_key) for session in live]
    context = {
        "zones": sorted({*time_zones.offered(), request.user.zone} - {""}),
        "home": home_pages.stored(request.user),
        "home_pages": home_pages.open_pages(request.user),
        "sessions": shown,
        "others": any(not current for _session, current in shown),
        "app": TotpDevice.objects.filter(user=request.user).first(),
        "passkeys": list(request.user.passkeys.all()),
        "codes_left": recovery_codes.count_left(request.user),
        "tokens": tokens.described(request, request.user.tokens.filter(revoked_at=None), now=now),
    }
    return render(request, "console/pages/account.html", context)


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
@signed_in
def password(request: Request) -> HttpResponse:
    """Change the own password, which ends the person's other sessions.

    An account of single sign-on has none: the provider keeps the password.
    """
    if not request.user.has_usable_password():
        return lead(request, reverse("console:account"))
    form = sign_in.OwnPassword(request.POST or None)

    def change(given: dict[str, Any], now: datetime) -> None:
        try:
            services.change_own_password(
                request.user,
                old=given["old_password"],
                new=given["new_password"],
                address=services.client_address(request),
                now=now,
                keep_session=request.session.session_key or "",
            )
        except services.RetryLater:
            raise
        except services.Refused as error:
            raise FieldError("new_password", error.reason) from error
        update_session_auth_hash(request, request.user)
        messages.success(request, _("Password changed. Your other sessions have ended."))

    return form_dialog.act(
        request,
        form,
        change,
        back=reverse("console:account"),
        address=reverse("console:own-password"),
        title=_("Change password"),
        verb=_("Change password"),
        icon="lock",
    )


@require_POST
@signed_in
def end_session(request: Request, public_id: str) -> HttpResponse:
    now = timezone.now()
    live = queries.live_sessions(now).filter(user=request.user)
    found = [session for session in live if session.public_id == public_id]
    if not found:
        raise Http404
    sessions.end(found, request.user, actor=queries.actor(request.user), now=now)
    return redirect("console:account")


@require_POST
@signed_in
def end_other_sessions(request: Request) -> HttpResponse:
    """End all sessions of the person but this one."""
    now = timezone.now()
    others = queries.live_sessions(now).filter(user=request.user).exclude(session_key=request.session.stored_key)
    sessions.end(others, request.user, actor=queries.actor(request.user), now=now)
    return redirect("console:account")
