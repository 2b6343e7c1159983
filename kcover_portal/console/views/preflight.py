"""Preflight: the list of runs, and one run with its pair matrix."""

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from kcover_portal.accounts import queries as accounts
from kcover_portal.console import forms, lists
from kcover_portal.console.access import Request, signed_in
from kcover_portal.console.reads import preflight as reads
from kcover_portal.console.views.saved_views import opens_first
from kcover_portal.preflight.models import PreflightRun

PAGE_ROWS = 50
MAX_NODES = 100
MAX_REFUSALS = 20


@require_GET
@signed_in
@opens_first("preflight-runs")
def preflight_runs(request: Request) -> HttpResponse:
    """The list, newest first."""
    found = lists.find(lists.PREFLIGHT_RUNS, request.user, request.GET)
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "namespace", "state"),
        "page": Paginator(found.ordered().select_related("cluster"), PAGE_ROWS).get_page(request.GET.get("page")),
        "any": found.seen.exists(),
    }
    return render(request, "console/pages/preflight_runs.html", context)


@require_GET
@signed_in
def preflight_run(request: Request, pk: int) -> HttpResponse:
    """One run: received reports, the verdict with its reasons, and the matrix, flagged nodes first."""
    seen = PreflightRun.objects.filter(cluster__in=accounts.clusters_of(request.user))
    run = get_object_or_404(seen.select_related("cluster"), pk=pk)
    matrix = reads.matrix(run)
    context = {
        "run": run,
        "slots": range(1, matrix.slots + 1),
        "page": Paginator(matrix.rows, MAX_NODES).get_page(request.GET.get("page")),
        "refusals": list(run.refusals.all()[:MAX_REFUSALS]),
    }
    return render(request, "console/pages/preflight_run.html", context)
