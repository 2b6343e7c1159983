"""Users, roles and tokens, for admins. A token's secret is shown once and never stored."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover import reasons
from kcover_portal import localization
from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import ApiToken, User, Verb
from kcover_portal.accounts.services import second_factors, sessions
from kcover_portal.console import forms
from kcover_portal.console.access import Request, dialog, lead, require, signed_in
from kcover_portal.console.confirmation import confirm

TOKENS = 200


@require_GET
@signed_in
def access(request: Request) -> HttpResponse:
    """Users and roles, for admins of all clusters; tokens of the clusters that the person administers."""
    _require_admin_somewhere(request)
    now = timezone.now()
    everywhere = queries.may(request.user, Verb.ADMINISTER, None)
    rows = User.objects.order_by("username").prefetch_related("bindings__cluster")
    users = rows if everywhere else rows.none()
    counts = Counter(queries.live_sessions(now).values_list("user", flat=True)) if everywhere else Counter()
    tokens = _tokens(request)
    agents = "agents" in request.GET  # each enrolled agent has a token: they would bury the tokens that people made
    listed = tokens.exclude(node="") if agents else tokens.filter(node="")
    context = {
        "users": [(user, counts.get(user.pk, 0)) for user in users],
        "everywhere": everywhere,
        "with_factor": queries.users_with_second_factor(),
        "invited": queries.invited_users(),
        "tokens": [(token, _state(token, now)) for token in listed.select_related("cluster", "owner")[:TOKENS]],
        "agents": agents,
        "others": tokens.count() - listed.count(),
        "limit": TOKENS,
        "number": listed.count(),
    }
    return render(request, "console/pages/access.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def new_token(request: Request) -> HttpResponse:
    """Create a token; the response shows its secret once."""
    _require_admin_somewhere(request)
    clusters = queries.clusters_of(request.user, Verb.ADMINISTER)
    everywhere = queries.may(request.user, Verb.ADMINISTER, None)
    form = forms.NewToken(request.POST or None, clusters=clusters, everywhere=everywhere)
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        require(request, Verb.ADMINISTER, given["cluster"])
        confirm(request)
        now = timezone.now()
        try:
            token, secret = services.make_token(
                given["kind"],
                cluster=given["cluster"],
                node=given["node"],
                name=given["name"],
                expires_at=now + timedelta(days=given["days"])
                if given["days"]
                else services.default_expiry(given["kind"], now=now),
                networks=given["networks"].replace(",", " ").split(),
                owner=request.user,
                created_by=queries.actor(request.user),
                now=now,
            )
        except services.Refused as error:
            form.add_error(None, localization.say(error.reason))
        else:
            context = {"token": token, "secret": secret, "base": dialog(request)}
            return render(request, "console/pages/token_made.html", context)
    return _ask(request, form, title=_("New token"), verb=_("Create token"), icon="key", page="token-new")


@require_http_methods(["GET", "POST"])
@signed_in
def withdraw_token(request: Request, pk: int) -> HttpResponse:
    _require_admin_somewhere(request)
    token = get_object_or_404(_tokens(request).select_related("cluster"), pk=pk)
    form = forms.Act(request.POST or None)

    def withdraw(given: dict[str, Any], now: datetime) -> None:
        services.revoke_token(token, actor=queries.actor(request.user), now=now, reason=given["reason"])

    title = _("Revoke token %(prefix)s…") % {"prefix": token.prefix}
    return _do(
        request, form, withdraw, title=title, verb=_("Revoke"), icon="ban", page="token-withdraw", pk=pk, grave=True
    )


@require_http_methods(["GET", "POST"])
@signed_in
def new_user(request: Request) -> HttpResponse:
    """Create a user with a role."""
    require(request, Verb.ADMINISTER, None)
    confirm(request)
    form = forms.NewUser(request.POST or None)

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

    return _do(request, form, make, title=_("New user"), verb=_("Create user"), icon="user", page="user-new")


@require_http_methods(["GET", "POST"])
@signed_in
def role(request: Request, pk: int) -> HttpResponse:
    """Assign or remove a role. People cannot change their own, so that nobody locks themselves out."""
    require(request, Verb.ADMINISTER, None)
    user = get_object_or_404(User, pk=pk)
    form = forms.GiveRole(request.POST or None)

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
    return _do(request, form, give, title=title, verb=_("Save"), icon="key", page="user-role", pk=pk)


@require_http_methods(["GET", "POST"])
@signed_in
def password(request: Request, pk: int) -> HttpResponse:
    """Set a person's password, which ends their sessions."""
    require(request, Verb.ADMINISTER, None)
    confirm(request)
    user = get_object_or_404(User, pk=pk)
    form = forms.NewPassword(request.POST or None)

    def change(given: dict[str, Any], now: datetime) -> None:
        services.check_may_change(request.user, user)
        services.set_password(user, given["password"], actor=queries.actor(request.user), now=now)

    title = _("Password of %(name)s") % {"name": user.username}
    return _do(request, form, change, title=title, verb=_("Save"), icon="lock", page="user-password", pk=pk)


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
        services.disable(user, actor=queries.actor(request.user), now=now, reason=given["reason"])

    title = _("Disable %(name)s…") % {"name": user.username}
    text = _("Ends the sessions of the account. Nobody can sign in to it, and its tokens are refused.")
    return _do(
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
    """Enable a disabled account."""
    require(request, Verb.ADMINISTER, None)
    user = get_object_or_404(User, pk=pk)
    form = forms.Act(request.POST or None)

    def act(given: dict[str, Any], now: datetime) -> None:
        services.check_may_change(request.user, user)
        confirm(request)
        services.enable(user, actor=queries.actor(request.user), now=now, reason=given["reason"])

    title = _("Enable %(name)s…") % {"name": user.username}
    text = _("The person can sign in again. Their tokens are valid again.")
    return _do(request, form, act, title=title, text=text, verb=_("Enable"), icon="user", page="user-enable", pk=pk)


@require_http_methods(["GET", "POST"])
@signed_in
def end_sessions(request: Request, pk: int) -> HttpResponse:
    """End all sessions of a person."""
    require(request, Verb.ADMINISTER, None)
    user = get_object_or_404(User, pk=pk)
    form = forms.Act(request.POST or None)

    def end(given: dict[str, Any], now: datetime) -> None:
        services.check_may_change(request.user, user)
        live = queries.live_sessions(now).filter(user=user)
        sessions.end(live, user, actor=queries.actor(request.user), now=now, reason=given["reason"])

    title = _("End the sessions of %(name)s…") % {"name": user.username}
    return _do(request, form, end, title=title, verb=_("End sessions"), icon="logout", page="user-sessions", pk=pk)


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
    return _do(request, form, reset, **shown, pk=pk, grave=True)


def _do(
    request: Request, form: Any, act: Callable[[dict[str, Any], datetime], None], *, page: str, **shown: Any
) -> HttpResponse:
    """Show the form (GET) or act and redirect (POST); a service's refusal becomes a form error."""
    if request.method == "POST" and form.is_valid():
        try:
            act(form.cleaned_data, timezone.now())
        except services.Refused as error:
            form.add_error(None, localization.say(error.reason))
        else:
            target = reverse("console:access")
            return lead(request, target)
    return _ask(request, form, page=page, **shown)


def _ask(request: Request, form: Any, *, page: str, pk: int | None = None, **shown: Any) -> HttpResponse:
    address = reverse(f"console:{page}", args=(pk,) if pk else ())
    context = {"form": form, "address": address, "back": reverse("console:access"), "base": dialog(request), **shown}
    return render(request, "console/pages/ask.html", context, status=422 if form.errors else 200)


def _tokens(request: Request) -> QuerySet[ApiToken]:
    """The tokens of the clusters in which the person is an admin.

    Tokens of agents are also found through their node's cluster.
    """
    return queries.visible(request.user, ApiToken.objects.all(), node=None, needed=Verb.ADMINISTER)


def _require_admin_somewhere(request: Request) -> None:
    if not queries.may_somewhere(request.user, Verb.ADMINISTER):
        require(request, Verb.ADMINISTER, None)


def _state(token: ApiToken, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.owner is not None and not token.owner.is_active and not token.node:
        return "suspended"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "live"
