"""Check runs: the list, one run, and starting or stopping one."""

from datetime import datetime
from typing import Any

from django.core.paginator import Paginator
from django.db.models import Case, Q, Value, When
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover.checks import autopilot
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.checks import queries, services
from kcover_portal.checks.models import CheckRun, CheckTarget
from kcover_portal.console import form_dialog, forms, list_columns, lists, scope_choice
from kcover_portal.console.access import Request, lead, require, signed_in
from kcover_portal.console.forms import checks
from kcover_portal.console.views.saved_views import opens_first

PAGE_ROWS = 50
PAGE_NODES = 100
LATEST_VALIDATIONS = 5  # above the runs
# Running nodes first, then failures, then waiting nodes, then passes.
ORDER = Case(
    When(state=CheckTarget.State.REQUESTED, then=Value(0)),
    When(finished_at=None, then=Value(2)),
    When(Q(statuses=[autopilot.OK]) | Q(statuses=[autopilot.NOT_CHECKED]), then=Value(3)),
    default=Value(1),
)


@require_GET
@signed_in
@opens_first("check-runs")
def check_runs(request: Request) -> HttpResponse:
    """The list, newest first."""
    found = lists.find(lists.CHECK_RUNS, request.user, request.GET)
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "state", "node"),
        "page": Paginator(found.ordered().select_related("cluster"), PAGE_ROWS).get_page(request.GET.get("page")),
        "any": found.seen.exists(),
        "asks": accounts.scope(request.user, Verb.CHECK).has_clusters,
        "validations": queries.with_nodes(lists.VALIDATIONS.seen(request.user))[:LATEST_VALIDATIONS],
        "validation_table": list_columns.VALIDATIONS,
        "validation_columns": [column.name for column in list_columns.VALIDATIONS],
    }
    return render(request, "console/pages/check_runs.html", context)


@require_GET
@signed_in
def check_run(request: Request, pk: int) -> HttpResponse:
    """One run: its progress and its nodes, the most important first."""
    run = _find(request, pk)
    targets = run.targets.select_related("node").order_by(ORDER, "place")
    going_on = run.state == CheckRun.State.RUNNING
    context = {
        "run": run,
        "page": Paginator(targets, PAGE_NODES).get_page(request.GET.get("page")),
        "stops": going_on and accounts.may(request.user, Verb.CHECK, run.cluster),
    }
    return render(request, "console/pages/check_run.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def begin(request: Request) -> HttpResponse:
    """Show the form (GET), then start the run (POST)."""
    if not accounts.scope(request.user, Verb.CHECK).has_clusters:
        require(request, Verb.CHECK, None)
    clusters = accounts.clusters_of(request.user, Verb.CHECK)
    initial, note = scope_choice.initial(request)
    form = checks.Checks(request.POST or None, clusters=clusters, initial=initial)

    def run(given: dict[str, Any], now: datetime) -> HttpResponse:
        require(request, Verb.CHECK, given["cluster"])
        nodes = scope_choice.chosen(given)
        begun = services.begin(
            given["cluster"],
            nodes,
            checks=given["checks"],
            level=given["level"],
            batch=given["batch"] or 0,
            actor=accounts.actor(request.user),
            now=now,
        )
        return lead(request, reverse("console:check-run", args=(begun.pk,)))

    return form_dialog.act(
        request,
        form,
        run,
        back=reverse("console:check-runs"),
        address=reverse("console:check-run-new"),
        title=_("Run checks"),
        text=_("The nodes' agents run the checks now. Checks that need idle GPUs are skipped where a pod uses a GPU."),
        verb=_("Run checks"),
        icon="list-check",
        note=note,
    )


@require_http_methods(["GET", "POST"])
@signed_in
def stop(request: Request, pk: int) -> HttpResponse:
    """Stop a run. No further nodes are checked."""
    run = _find(request, pk)
    require(request, Verb.CHECK, run.cluster)
    return form_dialog.act(
        request,
        forms.Act(request.POST or None),
        lambda given, now: services.stop(run, actor=accounts.actor(request.user), reason=given["reason"], now=now),
        back=reverse("console:check-run", args=(pk,)),
        address=reverse("console:check-run-stop", args=(pk,)),
        title=_("Stop run"),
        text=_("No further nodes are checked. Checks that have started finish, but their results are ignored."),
        verb=_("Stop run"),
        icon="ban",
    )


def _find(request: Request, pk: int) -> CheckRun:
    seen = CheckRun.objects.filter(cluster__in=accounts.clusters_of(request.user))
    return get_object_or_404(seen.select_related("cluster"), pk=pk)
