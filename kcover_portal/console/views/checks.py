"""Runs of checks: the list, one run as its nodes answer, and a new one."""

from django.core.paginator import Paginator
from django.db.models import Case, Q, Value, When
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from kcover import autopilot
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Role
from kcover_portal.console import asking, forms, lists
from kcover_portal.console.access import Request, dialog, lead, require, signed_in
from kcover_portal.fleet.models import CheckRun, CheckTurn
from kcover_portal.fleet.services import checking, selecting

PAGE = 50
TURNS = 100
# Under way first, then what is wrong, then what is still to come, then what is well.
ORDER = Case(
    When(state=CheckTurn.State.ASKED, then=Value(0)),
    When(finished_at=None, then=Value(2)),
    When(Q(said=[autopilot.OK]) | Q(said=[autopilot.NOT_CHECKED]), then=Value(3)),
    default=Value(1),
)


@require_GET
@signed_in
def check_runs(request: Request) -> HttpResponse:
    """The list, newest first."""
    found = lists.find(lists.CHECK_RUNS, request.user, request.GET)
    context = {
        "found": found,
        "form": forms.shown(request, found, "q", "cluster", "state", "node"),
        "page": Paginator(found.rows.select_related("cluster"), PAGE).get_page(request.GET.get("page")),
        "any": found.seen.exists(),
        "asks": accounts.may_somewhere(request.user, Role.OPERATOR),
    }
    return render(request, "console/pages/check_runs.html", context)


@require_GET
@signed_in
def check_run(request: Request, pk: int) -> HttpResponse:
    """One run: how far it is, and every node's turn, the ones to look at first."""
    run = _find(request, pk)
    turns = run.turns.select_related("node").order_by(ORDER, "place")
    going_on = run.state == CheckRun.State.RUNNING
    context = {
        "run": run,
        "page": Paginator(turns, TURNS).get_page(request.GET.get("page")),
        "stops": going_on and accounts.may(request.user, Role.OPERATOR, run.cluster),
    }
    return render(request, "console/pages/check_run.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def begin(request: Request) -> HttpResponse:
    """Asks what is to be run where (GET), then begins it (POST)."""
    if not accounts.may_somewhere(request.user, Role.OPERATOR):
        require(request, Role.OPERATOR, None)
    clusters = accounts.clusters_of(request.user, Role.OPERATOR)
    form = asking.Checks(request.POST or None, clusters=clusters, initial={"host": request.GET.get("host", "")})
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        require(request, Role.OPERATOR, given["cluster"])
        try:
            nodes = selecting.nodes(given["cluster"], hosts=given["host"], nodelabel=given["nodelabel"])
            if not nodes:
                raise selecting.Refused("host", _("The cluster has no GPU node."))
            run = checking.begin(
                given["cluster"],
                nodes,
                checks=given["checks"],
                level=given["level"],
                batch=given["batch"] or 0,
                actor=accounts.actor(request.user),
                now=timezone.now(),
            )
        except selecting.Refused as error:
            form.add_error(error.field, str(error))
        except checking.Refused as error:
            form.add_error(None, str(error))
        else:
            return lead(request, reverse("console:check-run", args=(run.pk,)))
    context = {
        "form": form,
        "title": _("Run checks"),
        "text": _("The nodes' agents run them now. What needs idle GPUs is left out where a pod holds some."),
        "verb": _("Run checks"),
        "icon": "list-check",
        "back": reverse("console:check-runs"),
        "address": reverse("console:check-run-new"),
        "base": dialog(request),
    }
    return render(request, "console/pages/ask.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "POST"])
@signed_in
def stop(request: Request, pk: int) -> HttpResponse:
    """Asks nobody else."""
    run = _find(request, pk)
    require(request, Role.OPERATOR, run.cluster)
    form = forms.Act(request.POST or None)
    page = reverse("console:check-run", args=(pk,))
    if request.method == "POST" and form.is_valid():
        reason = form.cleaned_data["reason"]
        try:
            checking.stop(run, actor=accounts.actor(request.user), reason=reason, now=timezone.now())
        except checking.Refused as error:
            form.add_error(None, str(error))
        else:
            return lead(request, page)
    context = {
        "form": form,
        "title": _("Stop the run"),
        "text": _("No more nodes are asked. A check that an agent has begun runs to its end, and nobody waits for it."),
        "verb": _("Stop the run"),
        "icon": "ban",
        "back": page,
        "address": reverse("console:check-run-stop", args=(pk,)),
        "base": dialog(request),
    }
    return render(request, "console/pages/ask.html", context, status=422 if form.errors else 200)


def _find(request: Request, pk: int) -> CheckRun:
    seen = CheckRun.objects.filter(cluster__in=accounts.clusters_of(request.user))
    return get_object_or_404(seen.select_related("cluster"), pk=pk)
