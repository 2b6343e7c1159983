"""Training jobs: the list, and orders to restart or stop one."""

from datetime import datetime
from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _, gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import form_dialog, forms
from kcover_portal.console.access import Request, place, require, signed_in
from kcover_portal.console.confirmation import confirm
from kcover_portal.console.forms import list_filters
from kcover_portal.console.reads import job_list
from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs import services
from kcover_portal.jobs.models import JobOrder
from kcover_portal.runtime.services import concurrency_limits

PAGE_ROWS = 50
DECLINE = "decline"
LOOKS = {
    JobOrder.Action.RESTART.value: (gettext_lazy("Restart"), "refresh"),
    JobOrder.Action.STOP.value: (gettext_lazy("Stop"), "ban"),
    DECLINE: (gettext_lazy("Decline the order"), "x"),
}


@require_GET
@signed_in
def jobs(request: Request) -> HttpResponse:
    """The jobs of the clusters or pools that the person sees, as the API servers answer."""
    with place(request, concurrency_limits.CLUSTER_READS):
        found = job_list.JOBS.find(request.user, request.GET, timezone.now())
    sort, asked = job_list.JOBS.sort(request.GET), job_list.JOBS.asked(request.GET)
    repairs = set(accounts.clusters_of(request.user, Verb.REPAIR).values_list("name", flat=True))
    context = {
        "page": Paginator(found.rows, PAGE_ROWS).get_page(request.GET.get("page")),
        "silent": found.missing,
        "list": job_list.JOBS,
        "sort": sort,
        "keep": [("sort", sort)],
        "problems": job_list.JOBS.problems(request.GET),
        "form": list_filters.of_computed(asked, job_list.choices(request.user)),
        "any": any(asked.values()),
        "repairs": repairs,
    }
    return render(request, "console/pages/jobs.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def act(request: Request, cluster: str, namespace: str, kind: str, name: str, action: str) -> HttpResponse:
    """Ask for a reason (GET), then order a restart or stop, or end an order that waits for approval (POST)."""
    if action not in LOOKS:
        raise Http404
    row: Cluster = get_object_or_404(accounts.clusters_of(request.user), name=cluster)
    require(request, Verb.REPAIR, row)
    form = forms.Act(request.POST or None)

    def order(given: dict[str, Any], now: datetime) -> None:
        about = {"kind": kind, "namespace": namespace, "name": name, "reason": given["reason"], "now": now}
        _carry_out(request, row, action, about)

    verb, icon = LOOKS[action]
    return form_dialog.act(
        request,
        form,
        order,
        back=reverse("console:jobs"),
        address=reverse("console:job-act", args=(cluster, namespace, kind, name, action)),
        title=_("%(verb)s %(job)s") % {"verb": verb, "job": f"{namespace}/{name}"},
        text=_text(row, action),
        verb=verb,
        icon=icon,
    )


def _carry_out(request: Request, row: Cluster, action: str, about: dict[str, Any]) -> None:
    """Raises OrderRefused, JobUnknown, and Interruption if an approver's second factor is due."""
    actor, now = accounts.actor(request.user), about["now"]
    may_approve = accounts.may(request.user, Verb.APPROVE, row)
    asked = {**about, "people": accounts.counted_as(request.user, at=now), "may_approve": may_approve}
    if action == DECLINE:
        services.decline(row, actor=actor, **asked)
        return
    if may_approve and row.hand_approval == Cluster.HandApproval.ALWAYS:
        confirm(request)  # it may approve the order of another person
    services.order(row, action=action, requested_by=actor, **asked)


def _text(row: Cluster, action: str) -> str:
    if action == DECLINE:
        return _("The order that waits for approval ends. The job keeps running.")
    effect = (
        _("All pods of the job end, and its controller creates them again.")
        if action == JobOrder.Action.RESTART
        else _("The job is suspended: all its pods end. Resume it with kubectl.")
    )
    if row.hand_approval != Cluster.HandApproval.ALWAYS:
        return effect
    return effect + " " + _("In this cluster, another person must give the same order before the job is changed.")
