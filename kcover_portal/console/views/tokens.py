"""API tokens: create, rotate, revoke. A token's secret is shown once and never stored."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import ApiToken, Verb
from kcover_portal.console import agent_commands, form_dialog, forms
from kcover_portal.console.access import Request, dialog, require, signed_in
from kcover_portal.console.confirmation import confirm
from kcover_portal.console.forms import tokens

MAX_ROWS = 200
STOP_POLLING = 286


def shown(request: Request, *, now: datetime) -> dict[str, Any]:
    """The tokens on the page Access: those of people, or, with ``?agents``, those of agents."""
    rows = _administered(request)
    agents = "agents" in request.GET  # each enrolled agent has a token: they would bury the tokens that people made
    listed = rows.exclude(node="") if agents else rows.filter(node="")
    return {
        "tokens": described(request, listed, now=now),
        "agents": agents,
        "others": rows.count() - listed.count(),
        "limit": MAX_ROWS,
        "number": listed.count(),
    }


def described(request: Request, rows: QuerySet[ApiToken], *, now: datetime) -> list[dict[str, Any]]:
    """The tokens with their states; ``rotates``: the person may rotate this one."""
    rows = rows.select_related("cluster", "owner", "replaced_by").prefetch_related("owner__bindings")[:MAX_ROWS]
    return [
        {"token": row, "state": _state(row, now), "rotates": services.may_rotate(row, request.user, now=now)}
        for row in rows
    ]


@require_http_methods(["GET", "POST"])
@signed_in
def new_token(request: Request) -> HttpResponse:
    """Create a token; the response shows its secret once."""
    require_admin_somewhere(request)
    clusters = queries.clusters_of(request.user, Verb.ADMINISTER)
    everywhere = queries.may(request.user, Verb.ADMINISTER, None)
    form = tokens.NewToken(request.POST or None, clusters=clusters, everywhere=everywhere)
    form.begin_with(request.GET)

    def create(given: dict[str, Any], now: datetime) -> HttpResponse:
        for verb in queries.verbs_to_issue(given["kind"]):
            require(request, verb, given["cluster"])
        confirm(request)
        actor = queries.actor(request.user)
        rights = form.rights(now=now)
        made = services.make_token(given["kind"], **rights, owner=request.user, created_by=actor, now=now)
        return _made(request, *made, back=reverse("console:access"))

    shown: dict[str, Any] = {"title": _("New token"), "verb": _("Create token"), "icon": "key"}
    shown["address"] = reverse("console:token-new")
    return form_dialog.act(request, form, create, back=reverse("console:access"), **shown)


@require_http_methods(["GET", "POST"])
@signed_in
def rotate_token(request: Request, pk: int) -> HttpResponse:
    """Replace a token by one with the same rights; the response shows the new secret once.

    Only its owner may: whoever knows the new secret acts in the owner's name.
    """
    own = request.user.tokens.filter(pk=pk).exists()
    rows = ApiToken.objects.all() if own else _administered(request)
    token = get_object_or_404(rows.select_related("cluster", "owner"), pk=pk)
    back = reverse("console:account" if "account" in request.GET else "console:access")
    form = tokens.Rotation(request.POST or None)

    def rotate(given: dict[str, Any], now: datetime) -> HttpResponse:
        overlap, actor = timedelta(seconds=given["overlap"]), queries.actor(request.user)
        made, secret = services.rotate(token, overlap=overlap, owner=request.user, actor=actor, now=now)
        token.refresh_from_db()
        return _made(request, made, secret, back=back, replaced=token)

    shown: dict[str, Any] = {
        "title": _("Rotate token %(prefix)s…") % {"prefix": token.prefix},
        "text": _("Creates a token with the same rights and a new secret."),
        "verb": _("Rotate"),
        "icon": "refresh",
        "address": request.get_full_path(),
    }
    return form_dialog.act(request, form, rotate, back=back, step_up=True, **shown)


@require_http_methods(["GET", "POST"])
@signed_in
def withdraw_token(request: Request, pk: int) -> HttpResponse:
    require_admin_somewhere(request)
    token = get_object_or_404(_administered(request).select_related("cluster"), pk=pk)
    form = forms.Act(request.POST or None)

    def withdraw(given: dict[str, Any], now: datetime) -> None:
        services.revoke_token(token, actor=queries.actor(request.user), now=now, reason=given["reason"])

    title = _("Revoke token %(prefix)s…") % {"prefix": token.prefix}
    shown: dict[str, Any] = {"title": title, "verb": _("Revoke"), "icon": "ban", "grave": True}
    address = reverse("console:token-withdraw", args=(pk,))
    silences = token.kind in ApiToken.SEEING
    back = reverse("console:access")
    return form_dialog.act(request, form, withdraw, back=back, step_up=silences, address=address, **shown)


@require_GET
@signed_in
def reports(request: Request, pk: int) -> HttpResponse:
    """How many agents report with the token, for the dialog that shows it; 204: none yet.

    The status 286 ends the polling of htmx, once all nodes report.
    """
    require_admin_somewhere(request)
    token = get_object_or_404(_administered(request).filter(kind=ApiToken.Kind.AGENT), pk=pk)
    found = agent_commands.enrolment(token)
    if not found.first:
        return HttpResponse(status=204)
    status = STOP_POLLING if found.is_complete else 200
    return render(request, "console/parts/first_report.html", {"enrolment": found}, status=status)


def require_admin_somewhere(request: Request) -> None:
    """Raises PermissionDenied unless the person administers at least one cluster."""
    if not queries.may_somewhere(request.user, Verb.ADMINISTER):
        require(request, Verb.ADMINISTER, None)


def _administered(request: Request) -> QuerySet[ApiToken]:
    """The tokens of the clusters in which the person is an admin.

    Tokens of agents are also found through their node's cluster.
    """
    return queries.visible(request.user, ApiToken.objects.all(), node=None, needed=Verb.ADMINISTER)


def _made(
    request: Request, token: ApiToken, secret: str, *, back: str, replaced: ApiToken | None = None
) -> HttpResponse:
    context: dict[str, Any] = {"token": token, "secret": secret, "replaced": replaced, "back": back}
    context["base"] = dialog(request)
    if replaced is None:
        context["commands"] = agent_commands.of(token, secret, url=request.build_absolute_uri("/").rstrip("/"))
    if token.kind == ApiToken.Kind.WALL:
        context["link"] = f"{request.build_absolute_uri(reverse('console:wall'))}#{secret}"
    return render(request, "console/pages/token_made.html", context)


def _state(token: ApiToken, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.owner is not None and not token.owner.is_active and not token.node:
        return "suspended"
    if not queries.owner_may_issue(token):
        return "ownerless"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "live"
