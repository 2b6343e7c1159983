"""Rescues: the list by tabs, one rescue step by step, and a person's word on it."""

from typing import Any

from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy
from django.views.decorators.http import require_GET, require_http_methods
from django_htmx.http import HttpResponseClientRedirect

from kcover import lifecycle
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Role
from kcover_portal.console import forms
from kcover_portal.console.access import Request, dialog, require, signed_in
from kcover_portal.console.reads import fleet
from kcover_portal.console.reads import rescues as reads
from kcover_portal.ledger import queries as ledger
from kcover_portal.rescue import services
from kcover_portal.rescue.filtersets import RescueFilter
from kcover_portal.rescue.models import Rescue

PAGE = 50
TABS = (
    ("all", pgettext_lazy("rescues", "All"), Q()),
    ("active", _("Active"), Q(state__in=("waiting", "running"))),
    ("approval", _("Awaiting approval"), fleet.AWAITING),
    ("people", _("Needs a person"), fleet.LEFT_TO_PEOPLE),
    ("succeeded", _("Succeeded"), Q(state="succeeded")),
    ("failed", _("Failed"), Q(state="failed")),
    ("cancelled", _("Cancelled"), Q(state="cancelled")),
)
ROLES = {
    "approve": Role.APPROVER,
    "reject": Role.APPROVER,
    "cancel": Role.OPERATOR,
    "retry": Role.OPERATOR,
    "skip": Role.OPERATOR,
}


@require_GET
@signed_in
def rescues(request: Request) -> HttpResponse:
    """The list, newest first, in tabs with counts."""
    clusters = accounts.clusters_of(request.user)
    rows = Rescue.objects.filter(cluster__in=clusters)
    chosen = RescueFilter(request.GET, queryset=rows)
    tab = request.GET.get("tab", "all")
    where = next((where for name, _label, where in TABS if name == tab), Q())
    found = chosen.qs.filter(where).select_related("node", "cluster", "decision")
    page = Paginator(found.prefetch_related("steps", "approvals"), PAGE).get_page(request.GET.get("page"))
    context = {
        "filter": chosen,
        "form": forms.shown(chosen, "q", "cluster", "code", "origin", clusters=[one.name for one in clusters]),
        "tabs": [(name, label, chosen.qs.filter(where).count()) for name, label, where in TABS],
        "tab": tab,
        "kept": [("tab", request.GET.get("tab", "")), ("policy", request.GET.get("policy", ""))],
        "page": page,
        "rows": [_row(rescue) for rescue in page.object_list],
        "any": rows.exists(),
    }
    return render(request, "console/pages/rescues.html", context)


def _row(rescue: Rescue) -> dict[str, Any]:
    steps = list(rescue.steps.all())
    done, total = reads.number_of(steps)
    step = reads.current(steps)
    return {
        "rescue": rescue,
        "state": reads.shown_state(rescue),
        "done": done,
        "total": total,
        "step": reads.title(step) if step and rescue.state in lifecycle.OPEN_RESCUE else "",
    }


@require_GET
@signed_in
def rescue(request: Request, pk: int) -> HttpResponse:
    """One rescue: the sentence, the steps with their calls and answers, the decision behind it, what may be done."""
    row = _find(request, pk)
    now = timezone.now()
    steps = list(row.steps.all())
    entries = list(ledger.timeline(row.cluster.name, rescue=row.pk).reverse())
    done, total = reads.number_of(steps)
    context = {
        "rescue": row,
        "state": reads.shown_state(row),
        "summary": reads.summary(row, steps),
        "steps": reads.timeline(row, steps, entries, now=now),
        "done": done,
        "total": total,
        "due_at": reads.countdown(row, now=now),
        "verified": {True: "yes", False: "no", None: "untried"}[row.verified],
        "entries": [
            entry for entry in entries if entry.verb.startswith("rescue.") or entry.actor != f"rescue {row.pk}"
        ],
        "approvals": list(row.approvals.all()),
        "incidents": list(row.incidents.all()),
        "verbs": [verb for verb in offered(row, steps) if accounts.may(request.user, ROLES[verb], row.cluster)],
    }
    return render(request, "console/pages/rescue.html", context)


def offered(row: Rescue, steps: list[Any]) -> list[str]:
    """What a person could do about the rescue as it stands; the service has the last word."""
    if row.state not in lifecycle.OPEN_RESCUE:
        return []
    if reads.awaits_approval(row):
        return ["approve", "reject"]
    step = reads.current(steps)
    stuck = step is not None and row.state == Rescue.State.HELD and step.state == "failed"
    return [*(["retry", "skip"] if stuck else []), "cancel"]


@require_http_methods(["GET", "POST"])
@signed_in
def act(request: Request, pk: int, verb: str) -> HttpResponse:
    """Asks for a reason (GET), then says the word (POST), about the plan that was on the screen."""
    if verb not in ROLES:
        raise Http404
    row = _find(request, pk)
    require(request, ROLES[verb], row.cluster)
    form = forms.Act(request.POST or None)
    if request.method == "POST" and form.is_valid():
        say = {
            "approve": services.approve,
            "reject": services.reject,
            "cancel": services.cancel,
            "retry": services.retry,
            "skip": services.skip,
        }[verb]
        try:
            say(
                row,
                actor=accounts.actor(request.user),
                reason=form.cleaned_data["reason"],
                now=timezone.now(),
                plan_hash=request.POST.get("plan_hash") or None,
            )
        except services.Refused as error:
            form.add_error(None, str(error))
        else:
            target = reverse("console:rescue", args=(row.pk,))
            return HttpResponseClientRedirect(target) if request.htmx else redirect(target)
    steps = list(row.steps.all())
    context = {"rescue": row, "verb": verb, "form": form, "steps": steps, "step": reads.current(steps)}
    context["base"] = dialog(request)
    return render(request, "console/pages/rescue_act.html", context, status=422 if form.errors else 200)


def _find(request: Request, pk: int) -> Rescue:
    seen: QuerySet[Rescue] = Rescue.objects.filter(cluster__in=accounts.clusters_of(request.user))
    return get_object_or_404(
        seen.select_related("node", "cluster", "decision").prefetch_related("steps", "approvals", "incidents"), pk=pk
    )
