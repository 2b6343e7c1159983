"""The page Access, and the acts of admins on users."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.forms import BaseForm
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover import reasons
from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import User, Verb
from kcover_portal.accounts.services import second_factors, sessions
from kcover_portal.console import form_dialog, forms
from kcover_portal.console.access import Request, require, signed_in
from kcover_portal.console.confirmation import confirm
from kcover_portal.console.forms import roles
from kcover_portal.console.views import custom_roles, tokens


@require_GET
@signed_in
def access(request: Request) -> HttpResponse:
    """Users and roles, for admins of all clusters; tokens of the clusters that the person administers."""
    tokens.require_admin_somewhere(request)
    now = timezone.now()
    context = {"everywhere": queries.may(request.user, Verb.ADMINISTER, None), **tokens.shown(request, now=now)}
    if context["everywhere"]:
        users = User.objects.order_by("username").prefetch_related("bindings__cluster")
        counts = Counter(queries.live_sessions(now).values_list("user", flat=True))
        context |= {
            "users": [(user, counts.get(user.pk, 0)) for user in users],
            "with_factor": queries.users_with_second_factor(),
            "invited": queries.invited_users(),
            **custom_roles.shown(),
        }
    return render(request, "console/pages/access.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def new_user(request: Request) -> HttpResponse:
    require(request, Verb.ADMINISTER, None)
    confirm(request)
    form = roles.NewUser(request.POST or None)

    def make(given: dict[str, Any], now: datetime) -> None:
        services.make_user(
            given["username"],
            password=given["password"],
            role=given["role"],
            cluster=given["cluster"],
            pool=given["pool"],
            giver=request.user,
            created_by=queries.actor(request.user),
            now=now,
        )

    return _act(request, form, make, title=_("New user"), verb=_("Create user"), icon="user", page="user-new")


@require_http_methods(["GET", "POST"])
@signed_in
def role(request: Request, pk: int) -> HttpResponse:
    """Assign or remove a role. People cannot change their own, so that nobody locks themselves out."""
    require(request, Verb.ADMINISTER, None)
    user = get_object_or_404(User, pk=pk)
    form = roles.GiveRole(request.POST or None)

    def give(given: dict[str, Any], now: datetime) -> None:
        if user.pk == request.user.pk:
            raise services.Refused(reasons.of("own_role"))
        confirm(request)
        actor = queries.actor(request.user)
        place = {"cluster": given["cluster"], "pool": given["pool"]}
        if given["role"]:
            services.bind(user, given["role"], giver=request.user, actor=actor, now=now, **place)
        else:
            services.unbind(user, giver=request.user, actor=actor, now=now, **place)

    title = _("Role of %(name)s") % {"name": user.username}
    return _act(request, form, give, title=title, verb=_("Save"), icon="key", page="user-role", pk=pk)


@require_http_methods(["GET", "POST"])
@signed_in
def password(request: Request, pk: int) -> HttpResponse:
    """Set a person's password, which ends their sessions."""
    require(request, Verb.ADMINISTER, None)
    confirm(request)
    user = get_object_or_404(User, pk=pk)
    form = roles.NewPassword(request.POST or None)

    def change(given: dict[str, Any], now: datetime) -> None:
        services.check_may_change(request.user, user)
        services.set_password(user, given["password"], actor=queries.actor(request.user), now=now)

    title = _("Password of %(name)s") % {"name": user.username}
    return _act(request, form, change, title=title, verb=_("Save"), icon="lock", page="user-password", pk=pk)


@require_http_methods(["GET", "POST"])
@signed_in
def disable(request: Request, pk: int) -> HttpResponse:
    """Disable an account. People cannot disable their own, so that nobody locks themselves out."""
    require(request, Verb.ADMINISTER, None)
    user = get_object_or_404(User, pk=pk)
    form = forms.Act(request.POST or None)

    def act(given: dict[str, Any], now: datetime) -> None:
        if user.pk == request.user.pk:
            raise services.Refused(reasons.of("own_account"))
        services.check_may_change(request.user, user)
        confirm(request)
        services.disable(user, actor=queries.actor(request.user), now=now, reason=given["reason"])

    title = _("Disable %(name)s…") % {"name": user.username}
    text = _("Ends the sessions of the account. Nobody can sign in to it, and its tokens are refused.")
    return _act(
        request,
        form,
        act,
        title=title,
        text=text,
        verb=_("Disable"),
        icon="ban",
        page="user-disable",
        pk=pk,
        grave=True,
    )


@require_http_methods(["GET", "POST"])
@signed_in
def enable(request: Request, pk: int) -> HttpResponse:
    require(request, Verb.ADMINISTER, None)
    user = get_object_or_404(User, pk=pk)
    form = forms.Act(request.POST or None)

    def act(given: dict[str, Any], now: datetime) -> None:
        services.check_may_change(request.user, user)
        confirm(request)
        services.enable(user, actor=queries.actor(request.user), now=now, reason=given["reason"])

    title = _("Enable %(name)s…") % {"name": user.username}
    text = _("The person can sign in again. Their tokens are valid again.")
    return _act(request, form, act, title=title, text=text, verb=_("Enable"), icon="user", page="user-enable", pk=pk)


@require_http_methods(["GET", "POST"])
@signed_in
def end_sessions(request: Request, pk: int) -> HttpResponse:
    require(request, Verb.ADMINISTER, None)
    user = get_object_or_404(User, pk=pk)
    form = forms.Act(request.POST or None)

    def end(given: dict[str, Any], now: datetime) -> None:
        services.check_may_change(request.user, user)
        confirm(request)
        live = queries.live_sessions(now).filter(user=user)
        sessions.end(live, user, actor=queries.actor(request.user), now=now, reason=given["reason"])

    title = _("End the sessions of %(name)s…") % {"name": user.username}
    return _act(request, form, end, title=title, verb=_("End sessions"), icon="logout", page="user-sessions", pk=pk)


@require_http_methods(["GET", "POST"])
@signed_in
def reset_factors(request: Request, pk: int) -> HttpResponse:
    """Remove a person's second factors, which ends their sessions."""
    require(request, Verb.ADMINISTER, None)
    user = get_object_or_404(User, pk=pk)
    form = forms.Act(request.POST or None)

    def reset(given: dict[str, Any], now: datetime) -> None:
        if user.pk == request.user.pk:
            raise services.Refused(reasons.of("own_factors"))
        services.check_may_change(request.user, user)
        confirm(request)
        second_factors.reset(user, actor=queries.actor(request.user), now=now, reason=given["reason"])

    title = _("Reset the second factors of %(name)s…") % {"name": user.username}
    text = _("Removes the app, the passkeys and the recovery codes of the account, and ends its sessions.")
    shown = {"title": title, "text": text, "verb": _("Reset"), "icon": "lock-open", "page": "user-factors"}
    return _act(request, form, reset, **shown, pk=pk, grave=True)


def _act(
    request: Request,
    form: BaseForm,
    do: Callable[[dict[str, Any], datetime], None],
    *,
    page: str,
    pk: int | None = None,
    **shown: Any,
) -> HttpResponse:
    """A form about a user; it leads back to the list."""
    address = reverse(f"console:{page}", args=(pk,) if pk else ())
    return form_dialog.act(request, form, do, back=reverse("console:access"), address=address, **shown)
