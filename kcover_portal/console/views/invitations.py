"""Invitations: an admin creates a link, and the invited person chooses a password with it.

The token stands behind ``#`` in the link, so no server and no log sees it until the page sends it in a POST.
"""

from datetime import datetime
from typing import Any

from django.contrib import messages
from django.forms import BaseForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import Invitation, User, Verb
from kcover_portal.accounts.services import invitations
from kcover_portal.console import form_dialog, forms
from kcover_portal.console.access import Request, dialog, require, signed_in
from kcover_portal.console.forms import roles, sign_in
from kcover_portal.lib import localization


@require_http_methods(["GET", "POST"])
@signed_in
def invite(request: Request) -> HttpResponse:
    """Create an account without a password, and a link for its owner. The response shows the link once."""
    require(request, Verb.ADMINISTER, None)
    form = roles.Invite(request.POST or None)

    def do(given: dict[str, Any], now: datetime) -> HttpResponse:
        made = invitations.invite_new(
            given["username"],
            role=given["role"],
            cluster=given["cluster"],
            pool=given["pool"],
            giver=request.user,
            actor=queries.actor(request.user),
            now=now,
        )
        return _made(request, *made)

    return _act(request, form, do, title=_("Invite a person"), address=reverse("console:user-invite"))


@require_http_methods(["GET", "POST"])
@signed_in
def invite_again(request: Request, pk: int) -> HttpResponse:
    """Create a new link for a person who has no password yet. It replaces earlier links."""
    require(request, Verb.ADMINISTER, None)
    user = get_object_or_404(User, pk=pk)
    form = forms.Act(request.POST or None)

    def do(_given: dict[str, Any], now: datetime) -> HttpResponse:
        services.check_may_change(request.user, user)
        return _made(request, *invitations.invite(user, actor=queries.actor(request.user), now=now))

    title = _("New invitation for %(name)s") % {"name": user.username}
    return _act(request, form, do, title=title, address=reverse("console:user-invite-again", args=(pk,)))


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "POST"])
def accept(request: HttpRequest) -> HttpResponse:
    """The page of an invitation: takes its token (POST), then the password that the person chooses (POST)."""
    secret = request.POST.get("token", "").strip().replace("\0", "")[:200]
    if not secret:
        return render(request, "console/pages/invitation.html", {})
    now = timezone.now()
    person: User | None = None
    form = sign_in.FirstPassword(request.POST if "new_password" in request.POST else None)
    try:
        person = invitations.read(secret, now=now)
        if form.is_bound and form.is_valid():
            password, address = form.cleaned_data["new_password"], services.client_address(request)
            invitations.accept(secret, password, address=address, now=now)
            messages.success(request, _("Password stored. You can sign in now."))
            return redirect("console:sign-in")
    except services.Refused as error:
        problem = localization.say(error.reason)
        if isinstance(error, invitations.InvitationInvalid) or not form.is_bound:
            return render(request, "console/pages/invitation.html", {"problem": problem}, status=410)
        form.add_error("new_password", problem)
    context = {"person": person, "token": secret, "form": form}
    return render(request, "console/pages/invitation.html", context, status=422 if form.errors else 200)


def _made(request: Request, invitation: Invitation, secret: str) -> HttpResponse:
    link = request.build_absolute_uri(f"{reverse('console:invitation')}#{secret}")
    context = {"invitation": invitation, "link": link, "base": dialog(request)}
    return render(request, "console/pages/invitation_made.html", context)


def _act(request: Request, form: BaseForm, do: form_dialog.Do, **shown: str) -> HttpResponse:
    look: dict[str, Any] = {"verb": _("Create the link"), "icon": "mail", **shown}
    return form_dialog.act(request, form, do, back=reverse("console:access"), step_up=True, **look)
