"""Plans of pair tests: the list, one plan with its matrix, starting and cancelling one."""

from datetime import datetime
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.checks.models import Validation
from kcover_portal.console import form_dialog, forms, lists, scope_choice
from kcover_portal.console.access import Request, lead, require, signed_in
from kcover_portal.console.forms import checks
from kcover_portal.console.reads import pair_matrix
from kcover_portal.preflight.models import PairPlan
from kcover_portal.preflight.services import pair_plans

PAGE_ROWS = 50
MAX_NODES = 100


@require_GET
@signed_in
def plans(request: Request) -> HttpResponse:
    """The list, newest first."""
    found = lists.find(lists.PAIR_PLANS, request.user, request.GET)
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "state", "node"),
        "page": Paginator(found.ordered().select_related("cluster"), PAGE_ROWS).get_page(request.GET.get("page")),
        "any": found.seen.exists(),
        "asks": accounts.scope(request.user, Verb.CHECK).has_clusters,
    }
    return render(request, "console/pages/preflight_plans.html", context)


@require_GET
@signed_in
def plan(request: Request, pk: int) -> HttpResponse:
    """One plan: its tests as a matrix, the flagged nodes first."""
    row = _find(request, pk)
    matrix = pair_matrix.of(row)
    context = {
        "plan": row,
        "validation": Validation.objects.filter(nccl_plan=row).first(),
        "matrix": matrix,
        "page": Paginator(matrix.rows, MAX_NODES).get_page(request.GET.get("page")),
        "cancels": row.state == PairPlan.State.RUNNING and accounts.may(request.user, Verb.CHECK, row.cluster),
    }
    return render(request, "console/pages/preflight_plan.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def begin(request: Request) -> HttpResponse:
    """Show the form (GET), then request the tests (POST)."""
    if not accounts.scope(request.user, Verb.CHECK).has_clusters:
        require(request, Verb.CHECK, None)
    initial, note = scope_choice.initial(request)
    form = checks.TestPairs(
        request.POST or None,
        clusters=accounts.clusters_of(request.user, Verb.CHECK),
        initial=initial,
    )

    def test_pairs(given: dict[str, Any], now: datetime) -> HttpResponse:
        require(request, Verb.CHECK, given["cluster"])
        row = pair_plans.begin(
            given["cluster"],
            scope_choice.chosen(given),
            pair_plans.Wish(**{name: given[name] for name in ("rounds", "rule", "threshold", "busy_nodes", "reason")}),
            actor=accounts.actor(request.user),
            now=now,
        )
        return lead(request, reverse("console:preflight-plan", args=(row.pk,)))

    return form_dialog.act(
        request,
        form,
        test_pairs,
        back=reverse("console:preflight-plans"),
        address=reverse("console:preflight-plan-new"),
        title=_("Test pairs of nodes"),
        text=_(
            "A Job on each node of a pair runs an all-reduce over all GPUs of both. "
            "Tests wait for nodes with other work, and leave them out after ten minutes."
        ),
        verb=_("Test"),
        icon="binoculars",
        note=note,
    )


@require_http_methods(["GET", "POST"])
@signed_in
def cancel(request: Request, pk: int) -> HttpResponse:
    """Cancel a plan; workers delete its Jobs."""
    row = _find(request, pk)
    require(request, Verb.CHECK, row.cluster)
    return form_dialog.act(
        request,
        forms.Act(request.POST or None),
        lambda given, now: pair_plans.cancel(row, actor=accounts.actor(request.user), reason=given["reason"], now=now),
        back=reverse("console:preflight-plan", args=(pk,)),
        address=reverse("console:preflight-plan-cancel", args=(pk,)),
        title=_("Cancel pair tests"),
        text=_("The Jobs of running tests are deleted. There is no verdict."),
        verb=_("Cancel pair tests"),
        icon="ban",
    )


def _find(request: Request, pk: int) -> PairPlan:
    seen = PairPlan.objects.filter(cluster__in=accounts.clusters_of(request.user))
    return get_object_or_404(seen.select_related("cluster"), pk=pk)
