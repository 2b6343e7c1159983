"""Validations: the list, one validation, starting or cancelling one, and their profiles."""

from datetime import datetime
from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover.validation import profiles
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.checks import queries
from kcover_portal.checks.models import Validation
from kcover_portal.checks.services import validation_profiles, validations as services
from kcover_portal.console import form_dialog, forms, lists, scope_choice
from kcover_portal.console.access import Request, lead, require, signed_in
from kcover_portal.console.forms import checks
from kcover_portal.console.forms.validation_profiles import ProfileText
from kcover_portal.console.views.saved_views import opens_first

PAGE_ROWS = 50


@require_GET
@signed_in
@opens_first("validations")
def validations(request: Request) -> HttpResponse:
    """The list, newest first."""
    found = lists.find(lists.VALIDATIONS, request.user, request.GET)
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "state", "profile", "node"),
        "page": Paginator(queries.with_nodes(found.ordered()), PAGE_ROWS).get_page(request.GET.get("page")),
        "any": found.seen.exists(),
        "asks": accounts.scope(request.user, Verb.CHECK).has_clusters,
        "profiles": [
            (name, profile, profile != profiles.DEFAULTS[name])
            for name, profile in validation_profiles.in_force().items()
        ],
        "configures": accounts.may(request.user, Verb.CONFIGURE, None),
    }
    return render(request, "console/pages/validations.html", context)


@require_GET
@signed_in
def validation(request: Request, pk: int) -> HttpResponse:
    """One validation: the verdict on each node, with its results."""
    row = _find(request, pk)
    results = queries.validation_results(row)
    going_on = row.state in queries.OPEN_VALIDATION
    context = {
        "validation": row,
        "nodes": [(one, results[one.pk]) for one in row.nodes.all()],
        "cancels": going_on and accounts.may(request.user, Verb.CHECK, row.cluster),
    }
    return render(request, "console/pages/validation.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def begin(request: Request) -> HttpResponse:
    """Show the form (GET), then request the validation (POST)."""
    if not accounts.scope(request.user, Verb.CHECK).has_clusters:
        require(request, Verb.CHECK, None)
    initial, note = scope_choice.initial(request)
    form = checks.Validate(
        request.POST or None,
        clusters=accounts.clusters_of(request.user, Verb.CHECK),
        initial=initial,
        in_force=validation_profiles.in_force(),
    )

    def validate(given: dict[str, Any], now: datetime) -> HttpResponse:
        require(request, Verb.CHECK, given["cluster"])
        row = services.begin(
            given["cluster"],
            scope_choice.chosen(given),
            profile=given["profile"],
            reason=given["reason"],
            actor=accounts.actor(request.user),
            now=now,
        )
        return lead(request, reverse("console:validation", args=(row.pk,)))

    return form_dialog.act(
        request,
        form,
        validate,
        back=reverse("console:validations"),
        address=reverse("console:validation-new"),
        title=_("Validate nodes"),
        text=_("A node passes only if every required check measured the hardware. Cordon the nodes first."),
        verb=_("Validate"),
        icon="shield-check",
        note=note,
    )


@require_http_methods(["GET", "POST"])
@signed_in
def cancel(request: Request, pk: int) -> HttpResponse:
    """Cancel a validation and stop its checks."""
    row = _find(request, pk)
    require(request, Verb.CHECK, row.cluster)
    return form_dialog.act(
        request,
        forms.Act(request.POST or None),
        lambda given, now: services.cancel(row, actor=accounts.actor(request.user), reason=given["reason"], now=now),
        back=reverse("console:validation", args=(pk,)),
        address=reverse("console:validation-cancel", args=(pk,)),
        title=_("Cancel validation"),
        text=_("No further nodes are checked. Checks that have started finish, but their results are ignored."),
        verb=_("Cancel validation"),
        icon="ban",
    )


@require_http_methods(["GET", "POST"])
@signed_in
def profile(request: Request, name: str) -> HttpResponse:
    """Show what a profile asks for (GET), then change it for all clusters (POST)."""
    if name not in profiles.DEFAULTS:
        raise Http404
    require(request, Verb.CONFIGURE, None)

    def change(given: dict[str, Any], now: datetime) -> None:
        actor = accounts.actor(request.user)
        validation_profiles.change(name, given["document"], actor=actor, reason=given["reason"], now=now)

    return form_dialog.act(
        request,
        ProfileText(request.POST or None, profile=validation_profiles.named(name)),
        change,
        back=reverse("console:validations"),
        address=reverse("console:validation-profile", args=(name,)),
        title=_("Change the profile %(name)s") % {"name": name},
        text=_("The profile applies to all clusters. Validations that are open keep the profile that they began with."),
        verb=_("Change"),
        icon="shield-check",
        step_up=True,
    )


def _find(request: Request, pk: int) -> Validation:
    seen = Validation.objects.filter(cluster__in=accounts.clusters_of(request.user))
    return get_object_or_404(seen.select_related("cluster").prefetch_related("nodes__node"), pk=pk)
